"""A stream started once more by hand: from the work folder of this machine, and from nothing that others may write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.exceptions import CkptError, NotPrivate
from airflow_ckpt.runners.launch_note import LAUNCH_NOTE, save_launch
from airflow_ckpt.runners.private_files import write_private
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.relaunch import kafka_of, last_launch, relaunch, stream_of
from ckpt_stream.protocol.run_files.run_record import RunRecord

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "broker:9092"}
SECURED = {**KAFKA, "sasl.password": "hush"}
OLD = "old"
INTENT = SubmitIntent(OLD, "2026-01-01T00:00:00+00:00", "a task", "process")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def submitted(root: Path, checkpoint: Path, *, secured: bool = False, token: str = OLD, job: bool = False) -> Stream:
    """What a submit leaves in the work folder."""
    root.mkdir(mode=0o755, exist_ok=True)
    old = root / token
    old.mkdir(mode=0o700)
    for name in ("copy_topic.py", "driver.json", "exit.json"):
        (old / name).write_text(name)
    stream = Stream(name="orders", application="copy_topic.py", checkpoint=str(checkpoint), source="in", sink="out")
    write_private(old / "stream.json", json.dumps(stream.document(KAFKA, token)))
    argv = ["spark-submit", *(["--properties-file", f"{old}/secrets.conf"] if secured else [])]
    save_launch(old, [*argv, f"{old}/copy_topic.py", f"@{old}/stream.json"], {"A": "b"}, stream.as_dict(), job=job)
    return stream


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "work"


def test_the_same_command_runs_in_a_folder_of_its_own_without_the_traces_of_the_last_run(
    root: Path, checkpoint: Path
) -> None:
    stream = submitted(root, checkpoint)
    last = last_launch(root, str(checkpoint), INTENT)
    assert (last.stream, last.kafka) == (stream, KAFKA)
    launch = relaunch(stream, LaunchRequest("new"), last, last.kafka)
    new = root / "new"
    assert launch.argv == ("spark-submit", f"{new}/copy_topic.py", f"@{new}/stream.json")
    assert (launch.env, launch.secret_files) == ({"A": "b"}, ())
    assert sorted(path.name for path in new.iterdir()) == ["copy_topic.py", LAUNCH_NOTE, "stream.json"]
    assert json.loads((new / "stream.json").read_text())["token"] == "new"


def test_a_relaunch_can_itself_be_launched_again(root: Path, checkpoint: Path) -> None:
    stream = submitted(root, checkpoint)
    relaunch(stream, LaunchRequest("new"), last_launch(root, str(checkpoint), INTENT), KAFKA)
    again = last_launch(root, str(checkpoint), SubmitIntent("new", INTENT.time, "me", "process"))
    assert relaunch(stream, LaunchRequest("newer"), again, KAFKA).argv[1] == f"{root}/newer/copy_topic.py"


def test_secrets_go_into_a_private_file_and_are_asked_for_where_they_are_missing(root: Path, checkpoint: Path) -> None:
    stream = submitted(root, checkpoint, secured=True)
    last = last_launch(root, str(checkpoint), INTENT)
    launch = relaunch(stream, LaunchRequest("new"), last, SECURED)
    (file,) = (Path(name) for name in launch.secret_files)
    assert str(file) in launch.argv
    assert (file.stat().st_mode & 0o777, "hush" in file.read_text()) == (0o600, True)
    assert "hush" not in (root / "new" / "stream.json").read_text()
    assert "hush" not in (root / "new" / LAUNCH_NOTE).read_text()
    with pytest.raises(CkptError, match="--kafka-config") as refused:
        relaunch(stream, LaunchRequest("another"), last, KAFKA)
    assert refused.value.kind == "no_credentials"
    assert not (root / "another").exists()


def test_a_launch_that_is_not_on_this_machine_is_refused_with_the_way_out(root: Path, checkpoint: Path) -> None:
    with pytest.raises(CkptError, match=str(checkpoint)) as by_hand:
        last_launch(root, str(checkpoint), None)
    with pytest.raises(CkptError, match=r"DAG.*AIRFLOW_HOME") as elsewhere:
        last_launch(root, str(checkpoint), INTENT)
    with pytest.raises(CkptError, match="airflow-ckpt inspect") as nothing:
        stream_of(str(checkpoint), None, None)
    kinds = [refused.value.kind for refused in (by_hand, elsewhere, nothing)]
    assert kinds == ["not_submitted", "not_on_this_machine", "never_ran"]


def test_a_folder_of_an_older_version_without_a_note_is_refused_with_the_way_out(root: Path, checkpoint: Path) -> None:
    submitted(root, checkpoint)
    (root / "old" / LAUNCH_NOTE).unlink()
    with pytest.raises(CkptError, match="DAG") as refused:
        last_launch(root, str(checkpoint), INTENT)
    assert refused.value.kind == "not_on_this_machine"


# --- what others may do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["..", ".", "", "../elsewhere/old", "/etc", "old/../../elsewhere", "old\x00", "a b"])
def test_a_token_that_is_a_path_leads_nowhere(root: Path, checkpoint: Path, token: str) -> None:
    elsewhere = root.with_name("elsewhere")
    submitted(elsewhere, checkpoint)
    submitted(root, checkpoint)
    save_launch(root, ["sh", "-c", "touch owned"], {}, {"checkpoint": str(checkpoint)})
    with pytest.raises(NotPrivate):
        last_launch(root, str(checkpoint), SubmitIntent(token, INTENT.time, "eve", "process"))


def test_the_launch_of_another_checkpoint_or_of_a_job_is_not_run(root: Path, checkpoint: Path) -> None:
    submitted(root, checkpoint.with_name("other"))
    with pytest.raises(CkptError, match=str(checkpoint.with_name("other"))) as refused:
        last_launch(root, str(checkpoint), INTENT)
    assert refused.value.kind == "of_another_stream"
    submitted(root, checkpoint, token="verify", job=True)
    with pytest.raises(CkptError, match="verify") as refused:
        last_launch(root, str(checkpoint), SubmitIntent("verify", INTENT.time, "eve", "process"))
    assert refused.value.kind == "of_a_job"


@pytest.mark.parametrize("spelt", ["{}", "{}/", "file://{}", "file:{}"])
def test_a_checkpoint_is_the_same_in_every_spelling(root: Path, checkpoint: Path, spelt: str) -> None:
    submitted(root, checkpoint)
    assert last_launch(root, spelt.format(checkpoint), INTENT).noted.env == {"A": "b"}


@pytest.mark.parametrize(("name", "mode"), [("", 0o775), ("", 0o757), ("old", 0o770), ("old", 0o701)])
def test_what_other_users_can_write_is_not_trusted(root: Path, checkpoint: Path, name: str, mode: int) -> None:
    submitted(root, checkpoint)
    (root / name).chmod(mode)
    with pytest.raises(NotPrivate, match="chmod go-"):
        last_launch(root, str(checkpoint), INTENT)


@pytest.mark.parametrize("name", ["", "old", f"old/{LAUNCH_NOTE}"])
def test_what_belongs_to_another_user_is_not_believed(
    root: Path, checkpoint: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(root, checkpoint)
    theirs = os.stat(root / name).st_ino
    real: dict[str, Any] = {"stat": Path.stat, "fstat": os.fstat}

    def disowned(about: os.stat_result) -> os.stat_result:
        values = list(about)
        values[4] = os.geteuid() + 1 if about.st_ino == theirs else about.st_uid
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", lambda fd: disowned(real["fstat"](fd)))
    monkeypatch.setattr(Path, "stat", lambda path, **how: disowned(real["stat"](path, **how)))
    with pytest.raises(NotPrivate):
        last_launch(root, str(checkpoint), INTENT)


@pytest.mark.parametrize("name", ["old", f"old/{LAUNCH_NOTE}"])
def test_a_link_is_not_followed(root: Path, checkpoint: Path, name: str) -> None:
    submitted(root, checkpoint)
    link = root / name
    target = link.rename(root.with_name("target"))
    link.symlink_to(target)
    with pytest.raises(NotPrivate):
        last_launch(root, str(checkpoint), INTENT)


def test_the_declaration_beside_the_checkpoint_cannot_name_another_checkpoint(checkpoint: Path) -> None:
    forged = Stream(name="orders", application="x.py", checkpoint="/etc", source="in", sink="out").as_dict()
    intent = SubmitIntent("old", INTENT.time, "eve", "process", forged)
    assert stream_of(str(checkpoint), intent, None).checkpoint == str(checkpoint)


def test_of_the_kafka_settings_in_a_run_record_only_the_address_is_used() -> None:
    """librdkafka runs `sasl.kerberos.kinit.cmd` in a shell and loads `plugin.library.paths`."""
    forged: dict[str, Any] = {**KAFKA, "sasl.kerberos.kinit.cmd": "touch owned", "plugin.library.paths": "/tmp/x.so"}
    assert kafka_of(RunRecord("run", "orders", settings={"kafka": forged})) == KAFKA
    assert kafka_of(RunRecord("run", "orders")) == kafka_of(None) == {}
