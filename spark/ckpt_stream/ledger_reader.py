"""Reads the ledger topic under read_committed: the last record of a lane, or all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from ckpt_stream.errors import SinkError
from ckpt_stream.kafka_errors import patiently
from ckpt_stream.ledger import LedgerRecord

#: A batch leaves at most three offsets in a lane: its record, a tombstone and the control marker. Two batches' worth is
#: read first; if that holds only leftovers of aborted attempts, the window grows.
FIRST_WINDOW = 8
#: One budget for the several calls of one read.
READ_SECONDS = 30.0


def reader_config(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Consumer settings for short reads: no group, no waiting, no end-of-partition events."""
    return {
        **kafka,
        "group.id": "ckpt-ledger-reader",  # never joined nor committed to: partitions are assigned by hand
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 5,
        "reconnect.backoff.ms": 10,
        "allow.auto.create.topics": False,
    }


def open_reader(kafka: Mapping[str, Any]) -> Any:
    from confluent_kafka import Consumer

    return Consumer(reader_config(kafka))


def read_last(consumer: Any, topic: str, lane: int, seconds: float = READ_SECONDS) -> LedgerRecord | None:
    """The newest record of a lane. None means that the lane holds no record, never that it could not be read."""
    low, end = _bounds(consumer, topic, lane, seconds)
    window = FIRST_WINDOW
    while True:
        start = max(low, end - window)
        newest = None
        for _, record in _read(consumer, topic, lane, start, end, seconds):
            newest = record or newest
        if newest is not None or start == low:
            return newest
        window *= 8


def read_lane(consumer: Any, topic: str, lane: int, seconds: float = READ_SECONDS) -> list[LedgerRecord]:
    """Every record of a lane in the order written, tombstoned ones left out. One written twice is there twice.

    A tombstone is for what was written before it: a query that took the ledger over uses the same keys again.
    """
    low, end = _bounds(consumer, topic, lane, seconds)
    kept: list[tuple[bytes, LedgerRecord]] = []
    tombstoned: dict[bytes, int] = {}
    for key, record in _read(consumer, topic, lane, low, end, seconds):
        if record is None:
            tombstoned[key] = len(kept)
        else:
            kept.append((key, record))
    return [record for place, (key, record) in enumerate(kept) if place >= tombstoned.get(key, 0)]


def _bounds(consumer: Any, topic: str, lane: int, seconds: float) -> tuple[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    def ask() -> tuple[int, int]:
        # A question about offsets that finds no connection is asked again 700 ms later. The answer to the first of these
        # makes librdkafka drop the connection to the bootstrap address; the second one waits for the next.
        for _ in range(2):
            consumer.list_topics(topic, timeout=seconds)
        # Under read_committed the upper bound is the last stable offset.
        bounds: tuple[int, int] = consumer.get_watermark_offsets(
            TopicPartition(topic, lane), timeout=seconds, cached=False
        )
        return bounds

    try:
        return patiently(ask, seconds)
    except KafkaException as e:
        raise SinkError(f"Lane {lane} of the ledger {topic} cannot be read: {e.args[0].str()}") from e


def _read(
    consumer: Any, topic: str, lane: int, start: int, end: int, seconds: float
) -> Iterator[tuple[bytes, LedgerRecord | None]]:
    """Yield what lies in [start, end). The position decides when that is reached: control records have no message."""
    from confluent_kafka import TopicPartition

    if start >= end:
        return
    deadline = time.monotonic() + seconds
    partition = TopicPartition(topic, lane, start)
    consumer.assign([partition])
    try:
        while True:
            message = consumer.poll(0.005)
            if message is not None:
                if message.error():
                    raise SinkError(f"Lane {lane} of the ledger {topic} cannot be read: {message.error().str()}")
                if message.offset() >= end:
                    return
                value = message.value()
                yield message.key() or b"", LedgerRecord.from_json(value) if value is not None else None
            elif consumer.position([partition])[0].offset >= end:
                return
            if time.monotonic() > deadline:
                raise SinkError(
                    f"Lane {lane} of the ledger {topic} was not read within {seconds:.0f} s (offsets {start} to {end})."
                )
    finally:
        consumer.unassign()
