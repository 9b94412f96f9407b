"""The other runs on a checkpoint, as a run that starts reads them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import other_runs
from ckpt_stream.driver.other_runs import OtherRuns
from ckpt_stream.errors import DriverAlive
from ckpt_stream.machine.lease import MISSED_HEARTBEATS, refuse_if_alive
from ckpt_stream.protocol.run_files.run_record import FINISHED, RUNNING, STARTING, RunRecord

pytestmark = pytest.mark.unit

MINE = RunRecord("20260102T000000.000000-mine", "orders")
BEFORE = "20260101T000000.000000-before"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses in which a run waits for heartbeats."""
    noted: list[float] = []
    monkeypatch.setattr(other_runs, "refuse_if_alive", partial(refuse_if_alive, sleep=noted.append))
    return noted


def elsewhere(files: FsspecFiles, state: str = RUNNING, heartbeat: str = "t0", run: str = BEFORE) -> RunRecord:
    """A run on another machine: only its heartbeat shows whether it is alive."""
    driver: dict[str, Any] = {"host": "another-machine", "pid": 1, "started": 1.0}
    record = RunRecord(run, "orders", state=state, driver=driver, heartbeat=heartbeat, heartbeat_seconds=1.0)
    files.write(record.path, record.to_json())
    return record


def test_a_run_of_another_machine_is_waited_for_once(files: FsspecFiles, pauses: list[float]) -> None:
    elsewhere(files)
    others = OtherRuns(files, MINE)
    others.refuse_if_alive()
    assert len(pauses) == MISSED_HEARTBEATS
    others.refuse_if_alive()
    assert len(pauses) == MISSED_HEARTBEATS


def test_a_run_that_counted_as_dead_and_has_a_new_heartbeat_is_alive(files: FsspecFiles, pauses: list[float]) -> None:
    elsewhere(files)
    others = OtherRuns(files, MINE)
    others.refuse_if_alive()
    elsewhere(files, heartbeat="t1")
    with pytest.raises(DriverAlive):
        others.refuse_if_alive()


def test_a_run_that_is_starting_is_waited_for_too(files: FsspecFiles, pauses: list[float]) -> None:
    elsewhere(files, STARTING)
    OtherRuns(files, MINE).refuse_if_alive()
    assert len(pauses) == MISSED_HEARTBEATS


def test_runs_are_given_in_the_order_of_their_start_and_without_the_own_one(files: FsspecFiles) -> None:
    others = OtherRuns(files, MINE)
    names = [f"2026010{day}T000000.000000-x" for day in (3, 1)]
    for name in names:
        elsewhere(files, run=name)
    files.write(MINE.path, MINE.to_json())
    assert [run.run for run in others.read()] == sorted(names)


def test_the_record_of_a_run_that_has_ended_is_read_once_and_any_other_again(files: FsspecFiles) -> None:
    others = OtherRuns(files, MINE)
    ended, living = elsewhere(files, FINISHED), elsewhere(files, run="20260101T120000.000000-y")
    assert [run.heartbeat for run in others.read()] == ["t0", "t0"]
    for run in (ended, living):
        run.heartbeat = "t1"
        files.write(run.path, run.to_json())
    assert [run.heartbeat for run in others.read()] == ["t0", "t1"]
