"""Reads the sink once with read_committed and adds up the records of each batch; memory does not grow with their number."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from airflow_ckpt.exceptions import ScanStuck
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER, checksum_of
from ckpt_stream.protocol.verification.audit import Audit
from ckpt_stream.protocol.verification.scan_result import Boundaries, ExpectedLanes, Name, Scan, Sums, parse_name

#: Messages per call of the client: so many that the call itself takes little time, so few that they stay in the CPU cache.
AT_ONCE = 2_000
#: If no message arrives for this time although the end is not reached, the read fails.
SILENCE_SECONDS = 60.0

Progress = Callable[[int, int], None]


def reader_settings(kafka: Mapping[str, Any], isolation: str = "read_committed") -> dict[str, Any]:
    return {
        **kafka,
        "group.id": "ckpt-verify",  # the consumer never joins the group or commits to it: partitions are assigned by hand
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "queued.min.messages": 100_000,
        "fetch.message.max.bytes": 8 * 1024 * 1024,
        "queued.max.messages.kbytes": 64 * 1024,
        # The default wait of a second after a full queue is too long: the queue is emptied in a fraction of that.
        "fetch.queue.backoff.ms": 10,
    }


def scan(
    kafka: Mapping[str, Any],
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    boundaries: Boundaries,
    progress: Progress | None = None,
    expected: ExpectedLanes | None = None,
    isolation: str = "read_committed",
) -> Scan:
    """Read [start, end) of every partition and add up each batch; ``expected``: every record must have an audit header."""
    begun = time.perf_counter()
    gathered = Gathered(topic, boundaries, end, expected)
    read_range(kafka, topic, start, end, gathered.add, progress, isolation)
    found = gathered.finish()
    found.seconds = time.perf_counter() - begun
    return found


def read_range(
    kafka: Mapping[str, Any],
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    take: Callable[[Sequence[Any]], None],
    progress: Progress | None = None,
    isolation: str = "read_committed",
) -> None:
    """Read a topic once from start to end. ``take`` may also get records after the end, and must ignore them."""
    from confluent_kafka import Consumer

    wanted = {p: (start.get(p, 0), stop) for p, stop in end.items() if start.get(p, 0) < stop}
    if not wanted:
        return
    consumer = Consumer(reader_settings(kafka, isolation))
    try:
        _read(consumer, topic, wanted, take, progress)
    finally:
        consumer.close()


def _read(
    consumer: Any,
    topic: str,
    wanted: Mapping[int, tuple[int, int]],
    take: Callable[[Sequence[Any]], None],
    progress: Progress | None,
) -> None:
    """Read until the consumer's position reaches the end; control records and compacted records have no message."""
    from confluent_kafka import TopicPartition

    partitions = [TopicPartition(topic, p, start) for p, (start, _) in wanted.items()]
    consumer.assign(partitions)
    total = sum(stop - start for start, stop in wanted.values())
    left = dict(wanted)
    silence = Deadline.after(SILENCE_SECONDS)
    while left:
        messages = consumer.consume(AT_ONCE, 0.1)
        if messages:
            take(messages)
            silence = Deadline.after(SILENCE_SECONDS)
        for position in consumer.position([TopicPartition(topic, p) for p in left]):
            if position.offset >= left[position.partition][1]:
                del left[position.partition]
                consumer.incremental_unassign([TopicPartition(topic, position.partition)])
        if progress is not None:
            progress(total - sum(stop - start for start, stop in left.values()), total)
        if silence.passed:
            raise ScanStuck(
                f"{topic} was not read to its end: no message came from partitions {sorted(left)} for {SILENCE_SECONDS:.0f} s."
            )


class Gathered:
    """Adds messages to their batches. Messages of one partition and batch are added together, to do little work per message."""

    def __init__(
        self, topic: str, boundaries: Boundaries, stops: Mapping[int, int], expected: ExpectedLanes | None = None
    ) -> None:
        self._boundaries, self._stops = boundaries, stops
        self._scan = Scan(topic=topic)
        self._audit = None if expected is None else Audit(expected)

    def finish(self) -> Scan:
        """The result, after everything was read."""
        if self._audit is not None:
            self._scan.audit = self._audit.finish()
        return self._scan

    def add(self, messages: Sequence[Any]) -> None:
        errors = [m.error() for m in messages]
        if any(errors):
            raise ScanStuck(f"The sink cannot be read: {next(filter(None, errors)).str()}")
        partitions = [m.partition() for m in messages]
        if len(set(partitions)) == 1:
            self._add_partition(messages, partitions[0])
            return
        first = 0
        for partition, same in groupby(partitions):
            end = first + sum(1 for _ in same)
            self._add_partition(messages[first:end], partition)
            first = end

    def _add_partition(self, messages: Sequence[Any], partition: int) -> None:
        """Divide the messages of a partition by batch, at the offsets where a batch ends."""
        last = _below(messages, self._stops[partition])
        first = 0
        while first < last:
            index, following = self._boundaries.batch_at(partition, messages[first].offset())
            end = _below(messages, following, first, last)
            self._add_batch(index, partition, messages[first:end])
            first = end

    def _add_batch(self, index: int | None, partition: int, messages: Sequence[Any]) -> None:
        ledger_format = self._boundaries.format_of(index)
        headers = [m.headers() for m in messages] if ledger_format > 1 or self._audit is not None else None
        keys, values = [m.key() for m in messages], [m.value() for m in messages]
        checksum = checksum_of(keys, values, headers if ledger_format > 1 else None, ledger_format)
        self._scan.batches.setdefault(index, Sums()).add(len(messages), checksum, partition)
        self._scan.records += len(messages)
        if self._audit is not None:
            names = [_name(pairs) for pairs in headers or ()]
            self._audit.add(partition, index, [m.offset() for m in messages], names)


def _name(headers: Any) -> Name | None:
    for key, value in headers or ():
        if key == AUDIT_HEADER and value is not None:
            return parse_name(value)
    return None


def _below(messages: Sequence[Any], offset: int, first: int = 0, last: int | None = None) -> int:
    """The index of the first message at or after an offset."""
    return bisect_left(messages, offset, first, len(messages) if last is None else last, key=_offset)


def _offset(message: Any) -> int:
    return int(message.offset())
