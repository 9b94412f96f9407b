"""A stream started once more by hand, from what its last submit has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.streams.control import Order
from airflow_ckpt.streams.intent import SubmitIntent
from airflow_ckpt.streams.relaunch import relaunch, stream_of
from airflow_ckpt.streams.stream import Stream

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "broker:9092"}
SECURED = {**KAFKA, "sasl.password": "hush"}


def submitted(folder: Path, *, secured: bool = False) -> tuple[Stream, SubmitIntent]:
    old = folder / "old"
    old.mkdir()
    for name in ("copy_topic.py", "driver.json", "exit.json"):
        (old / name).write_text(name)
    stream = Stream(name="orders", application="copy_topic.py", checkpoint=str(folder), source="in", sink="out")
    argv = ["spark-submit", *(["--properties-file", f"{old}/secrets.conf"] if secured else [])]
    command: dict[str, Any] = {
        "argv": [*argv, f"{old}/copy_topic.py", f"@{old}/stream.json"], "env": {"A": "b"}, "folder": str(old),
    }  # fmt: skip
    return stream, SubmitIntent(
        "old", "2026-01-01T00:00:00+00:00", "a task", "process", stream.as_dict(), None, command
    )


def test_the_same_command_runs_in_a_folder_of_its_own_without_the_traces_of_the_last_run(tmp_path: Path) -> None:
    stream, intent = submitted(tmp_path)
    launch = relaunch(stream, Order("new"), intent, KAFKA)
    new = tmp_path / "new"
    assert launch.argv == ("spark-submit", f"{new}/copy_topic.py", f"@{new}/stream.json")
    assert (launch.env, launch.secret_files) == ({"A": "b"}, ())
    assert sorted(path.name for path in new.iterdir()) == ["copy_topic.py", "stream.json"]
    assert json.loads((new / "stream.json").read_text())["token"] == "new"


def test_secrets_go_into_a_private_file_and_are_asked_for_where_they_are_missing(tmp_path: Path) -> None:
    stream, intent = submitted(tmp_path, secured=True)
    launch = relaunch(stream, Order("new"), intent, SECURED)
    (file,) = (Path(name) for name in launch.secret_files)
    assert str(file) in launch.argv
    assert (file.stat().st_mode & 0o777, "hush" in file.read_text()) == (0o600, True)
    assert "hush" not in (tmp_path / "new" / "stream.json").read_text()
    with pytest.raises(CkptError, match="--kafka-config"):
        relaunch(stream, Order("another"), intent, KAFKA)


def test_files_that_are_on_another_machine_and_a_checkpoint_without_a_submit_are_said_so(tmp_path: Path) -> None:
    stream, intent = submitted(tmp_path)
    with pytest.raises(CkptError, match="not submitted by Airflow"):
        relaunch(stream, Order("new"), None, KAFKA)
    (tmp_path / "old").rename(tmp_path / "gone")
    with pytest.raises(CkptError, match="not on this machine"):
        relaunch(stream, Order("new"), intent, KAFKA)
    with pytest.raises(CkptError, match="no stream of airflow-ckpt ever ran there"):
        stream_of(str(tmp_path), None, None)
