"""Reads the ledger topic under read_committed: the last record of a lane, or all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ckpt_stream.errors import LedgerUndecided, SinkError
from ckpt_stream.kafka.admin_client import retry_transient
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.offsets import Offsets

#: A batch takes at most three offsets in a lane: its record, a tombstone and the control marker. The offsets of two batches are
#: read first; if they hold only aborted attempts, more offsets are read.
FIRST_WINDOW = 8
#: How long a read waits for progress.
READ_SECONDS = 30.0
POLL_SECONDS = 0.005


def reader_config(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Consumer settings for short reads: no group, short waits."""
    return {
        **kafka,
        "group.id": "ckpt-ledger-reader",  # the consumer never joins the group or commits to it: partitions are assigned by hand
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        # Announces the end also where the position never reaches it: behind aborted records whose marker is not stable yet.
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 5,
        "reconnect.backoff.ms": 10,
        "allow.auto.create.topics": False,
    }


def open_reader(kafka: Mapping[str, Any]) -> Any:
    from confluent_kafka import Consumer

    return Consumer(reader_config(kafka))


def read_last(
    consumer: Any, topic: str, lane: int, seconds: float = READ_SECONDS, *, fenced: bool = True
) -> LedgerRecord | None:
    """The newest record of a lane. None means that the lane holds no record, never that it could not be read.

    After the lane was fenced, no transaction of the stream is open in it. A transaction that is still open belongs to another
    program, or hangs. It hides all records that were committed after it, so LedgerUndecided is raised.
    """
    low, end = _bounds(consumer, topic, lane, seconds)
    newest = _newest(consumer, topic, lane, low, end, seconds)
    if fenced and (high := _high_watermark(consumer, topic, lane, end, seconds)) > end:
        found = (
            f"Lane {lane} of {topic} was fenced, and a transaction in it is still open: readers see offsets up to {end}"
        )
        raise ledger_undecided(topic, f"{found} of {high}.")
    return newest


def ledger_undecided(topic: str, found: str) -> LedgerUndecided:
    """The error for a ledger that may hide a batch."""
    return LedgerUndecided(
        f"{found} A batch that is in the sink might be written twice, so nothing was written. What helps: start again in a "
        f"moment; if the same error comes back, `kafka-transactions.sh --bootstrap-server ... find-hanging --topic {topic}` "
        "names the transaction, and `kafka-transactions.sh --bootstrap-server ... abort` ends it."
    )


def _newest(consumer: Any, topic: str, lane: int, low: int, end: int, seconds: float) -> LedgerRecord | None:
    window = FIRST_WINDOW
    while True:
        start = max(low, end - window)
        newest = None
        for _, _, record in _read(consumer, topic, lane, start, end, seconds):
            newest = record or newest
        if newest is not None or start == low:
            return newest
        window *= 8


def read_lane(consumer: Any, topic: str, lane: int, seconds: float = READ_SECONDS) -> list[LedgerRecord]:
    """Every record of a lane in the order in which they were written. A tombstone deletes earlier records with its key."""
    return LaneReader(topic, lane).read(consumer, seconds)


class LaneReader:
    """Reads all records of a lane, any number of times: a second read fetches only new records."""

    def __init__(self, topic: str, lane: int) -> None:
        self.topic, self.lane = topic, lane
        self._next = 0
        self._records: dict[int, LedgerRecord] = {}
        self._written: dict[bytes, list[int]] = {}
        self._share = _SharedValues()

    def read(self, consumer: Any, seconds: float = READ_SECONDS) -> list[LedgerRecord]:
        """Like `read_lane`. A batch that was written twice is in the result twice."""
        low, end = _bounds(consumer, self.topic, self.lane, seconds)
        start = max(low, self._next)
        for offset, key, record in _read(consumer, self.topic, self.lane, start, end, seconds):
            if record is None:
                for old in self._written.pop(key, ()):
                    del self._records[old]
            else:
                self._records[offset] = self._share(record)
                self._written.setdefault(key, []).append(offset)
        self._next = max(start, end)
        return list(self._records.values())


class _SharedValues:
    """Keeps equal values of records only once: a week of one-second batches is 600,000 records."""

    NAMES = ("sink_id", "query_id", "run_id", "topic", "topic_id", "application", "dead_letter_topic")

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._end: Offsets = {}

    def __call__(self, record: LedgerRecord) -> LedgerRecord:
        values = {name: getattr(record, name) for name in self.NAMES}
        names = {name: self._known.setdefault(value, value) for name, value in values.items()}
        start = self._end if record.start == self._end else self._offsets(record.start)
        self._end = self._offsets(record.end)
        sink_start = self._offsets(record.sink_start)
        # The text of offsets/<batch> is large, and only a replay of the batch needs it.
        return replace(record, start=start, end=self._end, sink_start=sink_start, offsets=None, **names)

    def _offsets(self, offsets: Offsets) -> Offsets:
        return {
            sys.intern(topic): {sys.intern(partition): offset for partition, offset in ends.items()}
            for topic, ends in offsets.items()
        }


def _bounds(consumer: Any, topic: str, lane: int, seconds: float) -> tuple[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    def ask() -> tuple[int, int]:
        # librdkafka repeats a request about offsets 700 ms later if it has no connection. After the first answer it drops the
        # connection to the bootstrap address, so the second request has to wait for the next connection.
        for _ in range(2):
            consumer.list_topics(topic, timeout=seconds)
        # Under read_committed the upper bound is the last stable offset.
        bounds: tuple[int, int] = consumer.get_watermark_offsets(
            TopicPartition(topic, lane), timeout=seconds, cached=False
        )
        return bounds

    try:
        return retry_transient(ask, seconds)
    except KafkaException as e:
        raise SinkError(f"Lane {lane} of the ledger {topic} cannot be read: {e.args[0].str()}") from e


def _high_watermark(consumer: Any, topic: str, lane: int, end: int, seconds: float) -> int:
    """Where the lane ends for readers of all records; every answer with records contains it, so no request is needed."""
    from confluent_kafka import TopicPartition

    partition = TopicPartition(topic, lane)
    if consumer.get_watermark_offsets(partition, cached=True)[1] < 0:  # a lane without a record has not been read
        _read_to_end_of_partition(consumer, topic, lane, end, seconds)
    return int(consumer.get_watermark_offsets(partition, cached=True)[1])


def _read_to_end_of_partition(consumer: Any, topic: str, lane: int, end: int, seconds: float) -> None:
    """Read from the end on until Kafka answers that there are no more records."""
    from confluent_kafka import KafkaError, TopicPartition

    consumer.assign([TopicPartition(topic, lane, end)])
    deadline = Deadline.after(seconds)
    try:
        while not deadline.passed:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            if (error := message.error()) is None or error.code() == KafkaError._PARTITION_EOF:
                return
            raise SinkError(f"Lane {lane} of the ledger {topic} cannot be read: {error.str()}")
        raise SinkError(f"Kafka did not answer within {seconds:.0f} s where lane {lane} of the ledger {topic} ends.")
    finally:
        consumer.unassign()


def _read(
    consumer: Any, topic: str, lane: int, start: int, end: int, seconds: float
) -> Iterator[tuple[int, bytes, LedgerRecord | None]]:
    """Yield the records in [start, end) with offset and key.

    The end is recognised by the consumer's position, because control records and compacted records give no message, or by the
    event that announces the end of the partition. The time limit is for a read without progress, not for the whole read; the time
    that the caller spends on a record does not count.
    """
    from confluent_kafka import KafkaError, TopicPartition

    if start >= end:
        return
    partition = TopicPartition(topic, lane, start)
    consumer.assign([partition])
    reached, deadline = start, Deadline.after(seconds)
    try:
        while reached < end:
            message = consumer.poll(POLL_SECONDS)
            if message is None:
                position = consumer.position([partition])[0].offset
                if position <= reached and deadline.passed:
                    raise SinkError(
                        f"Lane {lane} of the ledger {topic} could be read to offset {reached} of {end}, and no further for "
                        f"{seconds:.0f} s."
                    )
                if position <= reached:
                    continue
                reached = position
            elif (error := message.error()) is not None and error.code() == KafkaError._PARTITION_EOF:
                reached = max(reached, message.offset())
            elif error is not None:
                raise SinkError(f"Lane {lane} of the ledger {topic} cannot be read: {error.str()}")
            elif message.offset() >= end:
                return
            else:
                value = message.value()
                record = LedgerRecord.from_json(value) if value is not None else None
                yield message.offset(), message.key() or b"", record
                reached = message.offset() + 1
            deadline = Deadline.after(seconds)
    finally:
        consumer.unassign()
