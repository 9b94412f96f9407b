"""One look at a stream whose run record cannot be read, and at drivers of other runners."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, Handle
from airflow_ckpt.supervision import observing
from airflow_ckpt.supervision.intent_files import write_intent
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import Unreadable
from ckpt_stream.machine.process_identity import boot_id, this_driver
from ckpt_stream.protocol.run_files import unfinished_files
from ckpt_stream.protocol.run_files.record_files import RUNS
from tests.airflow_ckpt.supervision.samples import TOKEN, a_run, a_stream, an_intent

pytestmark = pytest.mark.unit


class OneDriver:
    """A runner that is asked about one driver."""

    kind = "process"

    def __init__(self, state: str) -> None:
        self.state = DriverState(state, "in the runner's words")

    def look(self, handle: Handle) -> DriverState:
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
