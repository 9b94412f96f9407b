"""The heartbeat: it goes on whatever the driver is busy with, and no beat undoes or tears what the driver has written."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ckpt_stream.heart import Heart
from ckpt_stream.run_record import FINISHED, RUNNING, STARTING, RunRecord
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


class Storage:
    """Keeps every text that was written, and may be slow or away."""

    def __init__(self) -> None:
        self.written: list[RunRecord] = []
        self.writers: list[str] = []
        self.failures = 0
        self.let_go = threading.Event()
        self.let_go.set()
        self.inside = threading.Event()

    def write(self, name: str, text: str) -> None:
        beat = threading.current_thread().name == "ckpt-heart"
        self.inside.set()
        if beat:
            self.let_go.wait(30)
        if self.failures and beat:
            self.failures -= 1
            raise OSError("the storage is away")
        record = RunRecord.from_json(text)
        assert name == record.path
        self.written.append(record)
        self.writers.append(threading.current_thread().name)


@pytest.fixture
def storage() -> Storage:
    return Storage()


@pytest.fixture
def heart(storage: Storage) -> Iterator[Heart]:
    record = RunRecord("run-1", "orders", heartbeat_seconds=0.01)
    record.enter(STARTING)
    made = Heart(storage, record)
    made.save()
    made.start()
    yield made
    storage.let_go.set()
    made.stop()


def beats(storage: Storage) -> int:
    return storage.writers.count("ckpt-heart")


def test_a_driver_that_is_busy_with_its_start_is_heard_of(storage: Storage, heart: Heart) -> None:
    """This thread does nothing for it, as one that fences or loads state."""
    assert (storage.written[0].state, storage.writers[0] != "ckpt-heart") == (STARTING, True)
    wait_for(lambda: beats(storage) >= 3, "three beats")
    assert storage.written[-1].heartbeat > storage.written[0].heartbeat
    assert {record.state for record in storage.written} == {STARTING}


def test_no_beat_writes_over_a_newer_state(storage: Storage, heart: Heart) -> None:
    """A beat hangs in the storage with the older state; the newer one is written after it."""
    storage.let_go.clear()
    storage.inside.clear()
    assert storage.inside.wait(30), "a beat that is being written"
    heart.record.enter(RUNNING)
    saving = threading.Thread(target=heart.save)
    saving.start()
    saving.join(0.1)
    storage.let_go.set()
    saving.join(30)
    heart.stop()
    seen = [record.state for record in storage.written]
    assert seen == sorted(seen, key=[STARTING, RUNNING].index)
    assert seen[-1] == RUNNING


def test_a_change_is_never_half_in_a_beat(storage: Storage, heart: Heart) -> None:
    wait_for(lambda: beats(storage) >= 1, "a beat")
    with heart.lock:
        storage.inside.clear()
        assert not storage.inside.wait(0.1), "a beat in the middle of a change, ten intervals long"
    assert storage.inside.wait(30)


def test_storage_that_is_away_for_a_while_ends_no_heart(storage: Storage, heart: Heart) -> None:
    storage.failures = 3
    wait_for(lambda: storage.failures == 0, "three beats that were not written")
    before = beats(storage)
    wait_for(lambda: beats(storage) > before, "another beat")


def test_a_change_that_cannot_be_written_is_the_drivers_to_know(heart: Heart, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(name: str, text: str) -> None:
        raise OSError("the storage is away")

    monkeypatch.setattr(heart, "_files", type("Away", (), {"write": staticmethod(away)}))
    with pytest.raises(OSError, match="away"):
        heart.save()


def test_after_the_end_there_is_no_beat(storage: Storage, heart: Heart) -> None:
    wait_for(lambda: beats(storage) >= 1, "a beat")
    heart.record.enter(FINISHED)
    heart.save()
    heart.stop()
    assert not heart._thread.is_alive()
    assert storage.written[-1].state == FINISHED
