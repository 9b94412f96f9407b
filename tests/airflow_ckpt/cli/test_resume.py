"""`airflow-ckpt resume` on a checkpoint whose `_ckpt` folder was written by another user: nothing of it is run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.cli import app
from airflow_ckpt.cli.work_folder import work_folder
from airflow_ckpt.runners.launch_note import save_launch
from airflow_ckpt.runners.private_files import write_private
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import ENDED, DriverState
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision import control, source_position
from ckpt_stream.protocol.run_files import unfinished_files
from ckpt_stream.protocol.run_files.run_record import Failure, RunRecord
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.samples import start_with
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit

Resume = Callable[..., Result]


def writes(path: Path) -> list[str]:
    """A command that leaves a file."""
    return [sys.executable, "-c", f"open({str(path)!r}, 'w').close()"]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own work folder."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW_CKPT_HOME", str(tmp_path / "stack"))
    folder = tmp_path / "airflow" / "airflow_ckpt"
    folder.mkdir(parents=True, mode=0o755)
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A stream that has failed; no Kafka is known that could be asked."""
    folder = tmp_path / "checkpoint"
    record = RunRecord("20260101T000000.000000-t1", "orders", "t1", failure=Failure("SinkError", "Kafka is away"))
    record.settings = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}}
    record.enter("FAILED")
    record.heartbeat = record.history[0]["time"]
    FsspecFiles(str(folder)).write(record.path, record.to_json())
    return folder


def declaration(checkpoint: Path) -> Stream:
    return Stream(name="orders", application="orders.py", checkpoint=str(checkpoint), source="in", sink="out")


def noted(checkpoint: Path, token: str, **more: Any) -> None:
    """The intent beside the checkpoint, written by a user who may write there."""
    document = {
        "format": 1, "token": token, "time": "2026-01-01T00:00:00+00:00", "by": "a task", "runner": "process", "handle": None,
        "killed": None, "failed": None, "stream": declaration(checkpoint).as_dict(), "number": 1, **more,
    }  # fmt: skip
    FsspecFiles(str(checkpoint)).write("_ckpt/intents/00000001.json", json.dumps(document))


@pytest.fixture
def resume(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Resume:
    monkeypatch.setattr(source_position, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(source_position, "source_ends", lambda *_: {})
    topic = TopicEnds({0: 0}, {0: 1}, {0: 1})
    monkeypatch.setattr(
        control,
        "read_start_conditions",
        start_with(topics={"in": topic}),
    )

    def resume(*words: str) -> Result:
        return CliRunner().invoke(app, ["resume", str(checkpoint), "--new-budget", "--wait", "0", *words])

    return resume


def test_a_command_beside_the_checkpoint_is_never_run(
    work: Path, checkpoint: Path, resume: Resume, tmp_path: Path
) -> None:
    owned = tmp_path / "owned"
    planted = tmp_path / "planted" / "t1"
    planted.mkdir(parents=True)
    noted(checkpoint, "t1", command={"argv": writes(owned), "env": {}, "folder": str(planted)})
    ended = resume()
    wait_for_no_driver(planted.parent)
    assert not owned.exists()
    assert (ended.exit_code, "'t1'" in ended.stderr) == (1, True), (
        "the launch of this token is looked for, and not found"
    )


def wait_for_no_driver(folder: Path) -> None:
    """If a driver was started there, wait for its end, so that the look comes after what it did."""
    for note in folder.glob("*/driver.json"):
        wait_for(note.with_name("exit.json").exists, "the planted command's end", 10)


def test_the_launch_of_this_machine_is_run_whatever_is_noted_beside_the_checkpoint(
    work: Path, checkpoint: Path, resume: Resume, tmp_path: Path
) -> None:
    ours, owned = tmp_path / "ours", tmp_path / "owned"
    folder = work / "t1"
    folder.mkdir(mode=0o700)
    stream = declaration(checkpoint)
    write_private(folder / "stream.json", json.dumps(stream.document({"bootstrap.servers": "127.0.0.1:1"}, "t1")))
    save_launch(folder, writes(ours), {}, stream.as_dict())
    noted(
        checkpoint, "t1", command={"argv": writes(owned), "env": {"LD_PRELOAD": "/x"}, "folder": str(tmp_path)},
        stream={**stream.as_dict(), "application": "evil.py", "sink": "elsewhere"},
    )  # fmt: skip
    ended = resume("--json")
    assert ended.exit_code == 0, ended.stderr
    wait_for(ours.exists, "the command of this machine's launch", 10)
    [new] = [path for path in work.iterdir() if path.name != "t1"]
    wait_for((new / "exit.json").exists, "its end", 10)
    assert json.loads((new / "stream.json").read_text())["sink"] == "out"
    assert not owned.exists()


def test_the_work_folder_is_the_one_that_airflow_would_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AIRFLOW__AIRFLOW_CKPT__WORK_FOLDER", "AIRFLOW_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    home, stack = tmp_path / "airflow", tmp_path / "stack"
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    monkeypatch.setenv("AIRFLOW_CKPT_HOME", str(stack))
    assert work_folder() == home / "airflow_ckpt"
    home.mkdir()
    (home / "airflow.cfg").write_text("[core]\nx = %(y)s\n[airflow_ckpt]\nwork_folder = /data/100%%\n")
    assert work_folder() == Path("/data/100%")
    monkeypatch.setenv("AIRFLOW__AIRFLOW_CKPT__WORK_FOLDER", "/data/elsewhere")
    assert work_folder("t1") == Path("/data/elsewhere")
    # A driver of the embedded Airflow, which this shell knows nothing of.
    (stack / "airflow" / "airflow_ckpt" / "t1").mkdir(parents=True)
    assert work_folder("t1") == stack / "airflow" / "airflow_ckpt"
    assert work_folder("../airflow_ckpt/t1") == work_folder("t2") == Path("/data/elsewhere")


def test_a_run_record_that_its_driver_died_writing_does_not_block_the_command_line(
    work: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(ProcessRunner, "look", lambda *_: DriverState(ENDED, "exit code 137", 137))
    noted(checkpoint, "t1", handle={"kind": "process", "id": "7", "token": "t1", "details": {}})
    (checkpoint / "_ckpt/runs/20260101T000000.000000-t1.json").write_text("{")
    told = CliRunner().invoke(app, ["status", str(checkpoint), "--json"])
    assert (told.exit_code, json.loads(told.stdout)["state"]) == (1, "FAILED")


@pytest.mark.parametrize("command", ["status", "stop", "resume"])
def test_a_storage_that_is_away_is_one_line(
    work: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def away(*_: object, **__: object) -> None:
        raise PermissionError("AccessDenied")

    noted(checkpoint, "t1")
    for fail in (away, None):
        with monkeypatch.context() as during:
            if fail:
                during.setattr(FsspecFiles, "names", fail)
            else:
                during.setattr(control, "look", away)
                during.setattr(control, "look_before_start", away)
            told = CliRunner().invoke(app, [command, str(checkpoint)])
        assert (told.exit_code, told.stderr.count("\n")) == (1, 1), told.exception
        assert str(checkpoint) in told.stderr
        assert "AccessDenied" in told.stderr
