"""A run obeys a request to stop, while users withdraw it or write another one."""

from __future__ import annotations

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import stopping
from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.protocol.run_files.record_files import STOP
from ckpt_stream.protocol.run_files.run_record import RunRecord, path_of
from tests.ckpt_stream.driver.meanwhile import Meanwhile

pytestmark = pytest.mark.unit


@pytest.fixture
def storage(files: FsspecFiles) -> Meanwhile:
    return Meanwhile(files.root)


@pytest.fixture
def heartbeat(storage: Meanwhile) -> Heartbeat:
    return Heartbeat(storage, RunRecord("20260101T000000.000000-t", "orders", "t"))


def is_noted(files: FsspecFiles, heartbeat: Heartbeat) -> bool:
    """Whether others can see that this run stops."""
    return RunRecord.from_json(files.read(path_of(heartbeat.record.run)) or "").stopping


def test_a_run_that_stops_notes_it_in_its_record(storage: Meanwhile, heartbeat: Heartbeat) -> None:
    storage.write(STOP, "one")
    assert stopping.take_up(storage, heartbeat, "one")
    assert is_noted(storage, heartbeat)


def test_a_request_that_is_withdrawn_while_the_run_takes_it_up_is_not_obeyed(
    storage: Meanwhile, heartbeat: Heartbeat
) -> None:
    storage.write(STOP, "one")
    storage.then(lambda: storage.remove(STOP))
    assert not stopping.take_up(storage, heartbeat, "one")
    assert not is_noted(storage, heartbeat)


def test_a_request_that_is_replaced_while_the_run_takes_it_up_is_not_obeyed_in_its_place(
    storage: Meanwhile, heartbeat: Heartbeat
) -> None:
    """The new one may be for another run: it is looked at by itself."""
    storage.write(STOP, "one")
    storage.then(lambda: storage.write(STOP, "another"))
    assert not stopping.take_up(storage, heartbeat, "one")
    assert not is_noted(storage, heartbeat)


def test_an_outdated_request_is_deleted_and_a_new_one_in_its_place_is_not(storage: Meanwhile) -> None:
    storage.write(STOP, "obeyed")
    assert stopping.remove(storage, "obeyed")
    storage.write(STOP, "new")
    assert not stopping.remove(storage, "obeyed")
    assert storage.read(STOP) == "new"
