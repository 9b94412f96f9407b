"""Filling a topic: all of it, once, or an error that says how much is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ckpt.examples import fill_topic as module
from airflow_ckpt.examples.fill_topic import fill
from airflow_ckpt.exceptions import NotDelivered

pytestmark = pytest.mark.unit


class Producer:
    """A client with a short queue."""

    def __init__(self, room: int = 3, error: str | None = None, stuck: int = 0) -> None:
        self.room, self.error, self.stuck = room, error, stuck
        self.queue: list[Callable[..., None]] = []
        self.values: list[str] = []
        self.waited = 0

    def produce(self, topic: str, value: str, key: str | None, on_delivery: Callable[..., None]) -> None:
        if len(self.queue) >= self.room:
            raise BufferError("Local: Queue full")
        self.values.append(value)
        self.queue.append(on_delivery)

    def poll(self, seconds: float) -> None:
        if seconds:
            self.waited += 1
            self.flush(seconds)

    def flush(self, seconds: float) -> int:
        while self.queue:
            self.queue.pop(0)(self.error, None)
        return self.stuck


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records the topic holds."""
    found = [0]
    monkeypatch.setattr(module, "records_in", lambda admin, topic: found[0])
    return found


def pairs(count: int) -> Any:
    return ((None, str(n)) for n in range(count))


@pytest.mark.usefixtures("there")
def test_more_than_fits_into_the_clients_queue_is_sent_in_order() -> None:
    producer = Producer()
    fill(None, producer, "t", pairs(10))
    assert producer.values == [str(n) for n in range(10)]
    assert producer.waited == 3


def test_what_is_there_is_not_sent_again(there: list[int]) -> None:
    there[0], producer = 7, Producer()
    fill(None, producer, "t", pairs(10))
    assert producer.values == ["7", "8", "9"]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("producer", "words"), [(Producer(error="too large"), "2 records.*too large"), (Producer(stuck=2), "2 records")]
)
def test_a_record_that_kafka_did_not_take_is_an_error(producer: Producer, words: str) -> None:
    with pytest.raises(NotDelivered, match=words):
        fill(None, producer, "t", pairs(2))
