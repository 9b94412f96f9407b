"""One look at a stream whose run record cannot be read, and at drivers of other runners."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, Handle
from airflow_ckpt.supervision import observing
from airflow_ckpt.supervision.intent_files import write_intent
from airflow_ckpt.supervision.stop_or_kill import stop_is_pending
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import Unreadable
from ckpt_stream.machine.process_identity import boot_id, this_driver
from ckpt_stream.protocol.run_files import unfinished_files
from ckpt_stream.protocol.run_files.record_files import RUNS
from tests.airflow_ckpt.supervision.samples import TOKEN, a_run, a_stream, an_intent

pytestmark = pytest.mark.unit


#: The runner gets no answer.
NO_ANSWER = "no answer"


class OneDriver:
    """A runner that is asked about one driver."""

    kind = "process"

    def __init__(self, state: str) -> None:
        self.state = DriverState(state, "in the runner's words")

    def look(self, handle: Handle) -> DriverState:
        if self.state.state == NO_ANSWER:
            raise RunnerError("the cluster does not answer")
        return self.state


def with_a_torn_run_record(tmp_path: Path, token: str, driver: str) -> StreamAccess:
    files = FsspecFiles(str(tmp_path))
    write_intent(files, an_intent(handle={"kind": "process", "id": "1", "token": TOKEN}))
    files.write(f"{RUNS}/20261117T120000.000000-{token}.json", "")
    return StreamAccess(a_stream(), files, None, OneDriver(driver))  # type: ignore[arg-type]


@pytest.mark.parametrize(("token", "driver"), [(TOKEN, RUNNING), (TOKEN, UNKNOWN), ("another", ENDED)])
def test_a_run_record_that_cannot_be_read_is_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, driver: str
) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    with pytest.raises(Unreadable):
        observing.look(with_a_torn_run_record(tmp_path, token, driver))


@pytest.mark.parametrize(("driver", "state"), [(ENDED, "FAILED"), (VANISHED, "LOST")])
def test_a_driver_that_died_while_it_wrote_its_record_is_told_by_its_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, state: str
) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    assert observing.look(with_a_torn_run_record(tmp_path, TOKEN, driver)).state == state


HERE = this_driver(jvm_pid=0)
GONE: dict[str, Any] = {"host": socket.gethostname(), "boot": boot_id(), "pid": 2**22 + 1, "started": 1.0}


@pytest.mark.parametrize(
    ("state", "driver", "lives"),
    [
        ("RUNNING", HERE, True),
        ("STARTING", HERE, True),
        ("RUNNING", GONE, False),
        ("RUNNING", {**GONE, "host": "another-machine"}, None),
        ("STOPPED", GONE, None),
    ],
)
def test_the_process_of_a_run_that_has_not_ended_is_looked_for_on_this_machine(
    tmp_path: Path, state: str, driver: dict[str, Any], lives: bool | None
) -> None:
    files = FsspecFiles(str(tmp_path))
    run = a_run((state, 0), driver=driver)
    files.write(run.path, run.to_json())

    assert observing.observe(StreamAccess(a_stream(), files, None, None)).process_lives is lives


def test_whether_a_stop_waits_is_unknown_without_the_run_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run may have obeyed it, or may not: with neither answer a restart would be right."""
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    access = with_a_torn_run_record(tmp_path, TOKEN, RUNNING)
    with pytest.raises(Unreadable):
        stop_is_pending(access)


def submitted(tmp_path: Path, driver: str, *, minutes_ago: float, runner: str = "process") -> StreamAccess:
    """A stream whose driver has written no run record yet."""
    files = FsspecFiles(str(tmp_path))
    when = (datetime.now(UTC) - timedelta(minutes=minutes_ago)).isoformat()
    intent = replace(an_intent(handle={"kind": runner, "id": "1", "token": TOKEN}), time=when, runner=runner)
    write_intent(files, intent)
    return StreamAccess(a_stream(), files, None, OneDriver(driver))  # type: ignore[arg-type]


def test_a_runner_that_gets_no_answer_says_nothing_about_its_driver(tmp_path: Path) -> None:
    """Its driver may be waiting for a node: a second one must not be started."""
    status = observing.look(submitted(tmp_path, NO_ANSWER, minutes_ago=8))
    assert (status.state, "does not answer" in status.reason) == ("STARTING", True)


def test_a_runner_is_not_asked_about_the_driver_of_another_one(tmp_path: Path) -> None:
    """It has never heard of it, which is no proof that it has ended."""
    access = submitted(tmp_path, VANISHED, minutes_ago=8, runner="yarn")
    assert observing.look(access).state == "STARTING"
    assert observing.look_at_driver(access, observing.observe(access).intent)[1] == DriverState(
        UNKNOWN, "it was started by the runner 'yarn', not 'process'"
    )


def test_ages_are_read_if_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def with_source_ends(access: object, position: object, now: object, *, ages: bool) -> object:
        asked.append(ages)
        return position

    monkeypatch.setattr(observing, "with_source_ends", with_source_ends)
    access = submitted(tmp_path, RUNNING, minutes_ago=1)
    for wanted in (True, False):
        observing.look(access, lag_seconds=wanted)
    assert asked == [True, False]
