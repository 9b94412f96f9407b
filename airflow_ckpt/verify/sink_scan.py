"""Reads the sink once under read_committed and adds up what belongs to each batch. Memory does not grow with records."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from airflow_ckpt.exceptions import CkptError
from ckpt_stream.checksum import checksum_of
from ckpt_stream.sink_facts import Boundaries, Scan, Sums

__all__ = ["Boundaries", "Progress", "Scan", "ScanStuck", "Sums", "read_range", "reader_settings", "scan"]

#: Messages per call into the client: enough that the call costs nothing, few enough that they stay in the cache.
AT_ONCE = 2_000
#: Nothing at all for this long, although there is something to read, means that Kafka is stuck.
SILENCE_SECONDS = 60.0

Progress = Callable[[int, int], None]


class ScanStuck(CkptError):
    """The sink could not be read to the end."""


def reader_settings(kafka: Mapping[str, Any], isolation: str = "read_committed") -> dict[str, Any]:
    return {
        **kafka,
        "group.id": "ckpt-verify",  # never joined nor committed to: partitions are assigned by hand
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "queued.min.messages": 100_000,
        "fetch.message.max.bytes": 8 * 1024 * 1024,
        "queued.max.messages.kbytes": 64 * 1024,
        # A full queue is emptied in a fraction of the second that the client would wait before it fetches again.
        "fetch.queue.backoff.ms": 10,
    }


def scan(
    kafka: Mapping[str, Any],
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    boundaries: Boundaries,
    progress: Progress | None = None,
    on_message: Callable[[Any, int | None], None] | None = None,
    isolation: str = "read_committed",
) -> Scan:
    """Read [start, end) of every partition and add up each batch."""
    result = Scan(topic=topic)
    begun = time.perf_counter()
    tally = _Tally(boundaries, end, result)
    read_range(kafka, topic, start, end, lambda messages: tally.add(messages, on_message), progress, isolation)
    result.seconds = time.perf_counter() - begun
    return result


def read_range(
    kafka: Mapping[str, Any],
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    take: Callable[[Sequence[Any]], None],
    progress: Progress | None = None,
    isolation: str = "read_committed",
) -> None:
    """Read a topic once from start to end; what lies behind the end may be handed over too and is to be passed over."""
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
    """The position decides when the end is reached: holes have no message."""
    from confluent_kafka import TopicPartition

    partitions = [TopicPartition(topic, p, start) for p, (start, _) in wanted.items()]
    consumer.assign(partitions)
    total = sum(stop - start for start, stop in wanted.values())
    left = dict(wanted)
    last_sign = time.monotonic()
    while left:
        messages = consumer.consume(AT_ONCE, 0.1)
        if messages:
            take(messages)
            last_sign = time.monotonic()
        for position in consumer.position([TopicPartition(topic, p) for p in left]):
            if position.offset >= left[position.partition][1]:
                del left[position.partition]
                consumer.incremental_unassign([TopicPartition(topic, position.partition)])
        if progress is not None:
            progress(total - sum(stop - start for start, stop in left.values()), total)
        if time.monotonic() - last_sign > SILENCE_SECONDS:
            raise ScanStuck(
                f"{topic} was not read to its end: partitions {sorted(left)} gave nothing for {SILENCE_SECONDS:.0f} s."
            )


class _Tally:
    """Adds messages to their batch, a run of one partition and batch at a time: per message only what each must be asked."""

    def __init__(self, boundaries: Boundaries, stops: Mapping[int, int], result: Scan) -> None:
        self._boundaries, self._stops, self._result = boundaries, stops, result

    def add(self, messages: Sequence[Any], on_message: Callable[[Any, int | None], None] | None) -> None:
        errors = [m.error() for m in messages]
        if any(errors):
            raise ScanStuck(f"The sink cannot be read: {next(filter(None, errors)).str()}")
        partitions = [m.partition() for m in messages]
        if len(set(partitions)) == 1:
            self._add(messages, partitions[0], on_message)
            return
        first = 0
        for partition, same in groupby(partitions):
            end = first + sum(1 for _ in same)
            self._add(messages[first:end], partition, on_message)
            first = end

    def _add(self, run: Sequence[Any], partition: int, on_message: Callable[[Any, int | None], None] | None) -> None:
        """Offsets rise within a partition, so that a run is cut where a batch ends."""
        last = _below(run, self._stops[partition])
        first = 0
        while first < last:
            turn, following = self._boundaries.turn(partition, run[first].offset())
            end = _below(run, following, first, last)
            self._put(turn, partition, run[first:end])
            if on_message is not None:
                for message in run[first:end]:
                    on_message(message, turn)
            first = end

    def _put(self, turn: int | None, partition: int, messages: Sequence[Any]) -> None:
        ledger_format = self._boundaries.format_of(turn)
        headers = [m.headers() for m in messages] if ledger_format > 1 else None
        keys, values = [m.key() for m in messages], [m.value() for m in messages]
        checksum = checksum_of(keys, values, headers, ledger_format)
        self._result.batches.setdefault(turn, Sums()).add(len(messages), checksum, partition)
        self._result.records += len(messages)


def _below(run: Sequence[Any], offset: int, first: int = 0, last: int | None = None) -> int:
    """The place in a run at which the offsets reach a given one."""
    return bisect_left(run, offset, first, len(run) if last is None else last, key=_offset)


def _offset(message: Any) -> int:
    return int(message.offset())
