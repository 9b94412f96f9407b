"""The heartbeat continues whatever the driver is doing, and never undoes or tears what the driver has written."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.protocol.run_files.run_record import FINISHED, RUNNING, STARTING, RunRecord
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit


class Storage:
    """Keeps every text that was written, and may be slow or unavailable."""

    def __init__(self) -> None:
        self.written: list[RunRecord] = []
        self.writers: list[str] = []
        self.failures = 0
        self.let_go = threading.Event()
        self.let_go.set()
        self.inside = threading.Event()

    def write(self, name: str, text: str) -> None:
        is_heartbeat = threading.current_thread().name == "ckpt-heartbeat"
        self.inside.set()
        if is_heartbeat:
            self.let_go.wait(30)
        if self.failures and is_heartbeat:
            self.failures -= 1
            raise OSError("the storage is unavailable")
        record = RunRecord.from_json(text)
        assert name == record.path
        self.written.append(record)
        self.writers.append(threading.current_thread().name)


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def heartbeat(storage: Storage) -> Iterator[Heartbeat]:
    record = RunRecord("run-1", "orders", heartbeat_seconds=0.01)
    record.enter(STARTING)
    made = Heartbeat(storage, record)
    made.save()
    made.start()
    yield made
    storage.let_go.set()
    made.stop()


def heartbeats(storage: Storage) -> int:
    return storage.writers.count("ckpt-heartbeat")


def test_heartbeats_are_written_while_the_driver_is_busy_with_its_start(storage: Storage, heartbeat: Heartbeat) -> None:
    """This thread does nothing for them, like one that fences or loads state."""
    assert (storage.written[0].state, storage.writers[0] != "ckpt-heartbeat") == (STARTING, True)
    wait_for(lambda: heartbeats(storage) >= 3, "three heartbeats")
    assert storage.written[-1].heartbeat > storage.written[0].heartbeat
    assert {record.state for record in storage.written} == {STARTING}


def test_no_heartbeat_overwrites_a_newer_state(storage: Storage, heartbeat: Heartbeat) -> None:
    """A heartbeat hangs in the storage with the older state; the newer one is written after it."""
    storage.let_go.clear()
    storage.inside.clear()
    assert storage.inside.wait(30), "a heartbeat that is being written"
    heartbeat.record.enter(RUNNING)
    saving = threading.Thread(target=heartbeat.save)
    saving.start()
    saving.join(0.1)
    storage.let_go.set()
    saving.join(30)
    heartbeat.stop()
    seen = [record.state for record in storage.written]
    assert seen == sorted(seen, key=[STARTING, RUNNING].index)
    assert seen[-1] == RUNNING


def test_a_heartbeat_never_writes_half_of_a_change(storage: Storage, heartbeat: Heartbeat) -> None:
    wait_for(lambda: heartbeats(storage) >= 1, "a heartbeat")
    with heartbeat.lock:
        storage.inside.clear()
        assert not storage.inside.wait(0.1), "a heartbeat was written during the change, which took ten intervals"
    assert storage.inside.wait(30)


def test_heartbeats_continue_after_the_storage_was_unavailable(storage: Storage, heartbeat: Heartbeat) -> None:
    storage.failures = 3
    wait_for(lambda: storage.failures == 0, "three heartbeats that were not written")
    before = heartbeats(storage)
    wait_for(lambda: heartbeats(storage) > before, "another heartbeat")


def test_a_change_that_cannot_be_written_raises_on_the_driver(
    heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(name: str, text: str) -> None:
        raise OSError("the storage is unavailable")

    monkeypatch.setattr(heartbeat, "_files", type("Unavailable", (), {"write": staticmethod(unavailable)}))
    with pytest.raises(OSError, match="unavailable"):
        heartbeat.save()


def test_no_heartbeat_is_written_after_the_end(storage: Storage, heartbeat: Heartbeat) -> None:
    wait_for(lambda: heartbeats(storage) >= 1, "a heartbeat")
    heartbeat.record.enter(FINISHED)
    heartbeat.save()
    heartbeat.stop()
    assert not heartbeat._thread.is_alive()
    assert storage.written[-1].state == FINISHED
