"""Verifies a sink of another program: finds duplicated, lost and alien records by an id in each record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.exceptions import ScanStuck, TooManyIds
from airflow_ckpt.kafka.group_offsets import group_offsets
from airflow_ckpt.verify.checks.open_transactions import check_open
from airflow_ckpt.verify.checks.topics_check import missing_topic
from airflow_ckpt.verify.scan.record_ids import IdOf, Ids, id_reader
from airflow_ckpt.verify.scan.sink_scan import Progress, read_range
from airflow_ckpt.verify.verdict import FOREIGN_SINK, Finding, Verdict
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.kafka.settings import Kafka
from ckpt_stream.kafka.topic_settings import cleanup_policy, topic_settings
from ckpt_stream.protocol.verification.removed_records import removed_by_compaction

MAX_IDS = 20_000_000
#: So many faults of one kind are listed one by one; further faults are only counted.
LISTED = 20


def verify_foreign(
    kafka: Kafka,
    topic: str,
    *,
    id_path: str,
    source: str | None = None,
    source_id_path: str | None = None,
    group: str | None = None,
    sequence: bool = False,
    max_ids: int = MAX_IDS,
    transaction_timeout: float = 60.0,
    progress: Progress | None = None,
) -> Verdict:
    """Verify a topic, which is read once with read_committed up to its last stable offset.

    ``id_path`` is ``key``, ``value``, ``header:<name>`` or a path into the JSON value such as ``$.order.id``. Duplicates are
    always looked for; lost and alien records if there is a ``source`` topic; missing numbers between the smallest and the largest
    id if ``sequence`` is true. Give the consumer ``group`` of the program that writes the topic if it may be running: records
    that the group has not committed yet are then not reported as missing. Without a group, records that are missing at the end
    of a source partition are `not_there_yet`.
    """
    begun = time.perf_counter()
    verdict = Verdict(topic, FOREIGN_SINK, time=datetime.now(UTC).isoformat(timespec="seconds"))
    reader = _Reader(kafka, verdict, sequence, max_ids, transaction_timeout, progress)
    try:
        # Read before the sink's end: the source records up to these offsets must be in the sink by then.
        due = reader.due(source, group) if source else {}
        sink = reader.read(topic, "sink", id_reader(id_path))
        if sink is not None:
            verdict.sink_committed = len(sink) + sink.without
            verdict.duplicated = _add(verdict, check_duplicates(sink))
            if sequence and not sink.without and not reader.is_cut_short(topic):
                verdict.lost = _add(verdict, check_holes(sink))
        if sink is not None and source is not None:
            ids = reader.read(source, "source", id_reader(source_id_path or id_path))
            if ids is not None:
                _compare(verdict, reader, sink, ids, due, has_group=group is not None)
    except TooManyIds:
        what = f"There are more than {max_ids:,} records, too many to keep their ids in memory."
        helps = "verify a smaller topic (a sink written by ckpt_stream can have any size)"
        verdict.findings.append(_unknown("too_many_ids", what, helps, topic=topic))
    verdict.seconds = round(time.perf_counter() - begun, 3)
    if verdict.sink_committed and verdict.seconds:
        verdict.records_per_second = round(verdict.sink_committed / verdict.seconds)
    return verdict


def _compare(
    verdict: Verdict, reader: _Reader, sink: Ids, source: Ids, due: Mapping[int, int], *, has_group: bool
) -> None:
    verdict.source_records = len(source) + source.without
    lost, waiting = missing_records(sink, source, due, certain=has_group)
    if len(waiting):
        what = (
            f"{len(waiting)} record(s) at the end of {source.topic} are not in {sink.topic}: lost, or not written yet."
        )
        helps = "name the consumer group of the job that writes the sink, or verify again when it has caught up"
        verdict.findings.append(_unknown("not_there_yet", what, helps, topic=source.topic, records=len(waiting)))
    # A record that retention has deleted, or that has no id, would wrongly count as lost or alien.
    if not reader.is_cut_short(sink.topic) and (not len(lost) or len(lost) > sink.without):
        helps = "find out which run of the job read it, and whether its output was committed"
        findings = _listed("lost", source, lost, lambda _: "has an id that is not in the sink", helps)
        verdict.lost = (verdict.lost or 0) + _add(verdict, findings)
    alien = records_without_source(sink, source)
    if not reader.is_cut_short(source.topic) and (not len(alien) or len(alien) > source.without):
        helps = "another producer writes to the sink"
        verdict.alien = _add(
            verdict, _listed("alien", sink, alien, lambda _: "has an id that is not in the source", helps)
        )


def _add(verdict: Verdict, findings: Iterable[Finding]) -> int:
    """Add findings to a verdict; returns the number of records that they concern."""
    found = list(findings)
    verdict.findings.extend(found)
    return sum(f.records or 0 for f in found)


def check_duplicates(sink: Ids) -> Iterator[Finding]:
    """Find every copy of an id except the first."""
    import numpy as np

    numbers, _, _ = sink.arrays()
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    first = {int(order[i]): int(order[np.searchsorted(ordered, ordered[i])]) for i in again[:LISTED]}
    helps = "find out what wrote it twice: a restart of a job whose sink is at-least-once, or two jobs"
    words = "has the same id as the record at"
    return _listed("duplicate", sink, order[again], lambda i: f"{words} {sink.place(first[i])}", helps)


def check_holes(sink: Ids) -> Iterator[Finding]:
    """Find whole numbers between the smallest and the largest id that no record has."""
    import numpy as np

    numbers = np.unique(sink.arrays()[0])
    # As unsigned numbers: the distance of two signed 64-bit numbers may be larger than the largest signed number.
    steps = np.diff(numbers.view(np.uint64))
    holes = np.flatnonzero(steps > 1)
    for i in holes[:LISTED]:
        size, first, last = int(steps[i]) - 1, int(numbers[i]) + 1, int(numbers[i + 1]) - 1
        which = f"The id {first} is" if size == 1 else f"The {size} ids {first} to {last} are"
        what = f"{which} missing between the smallest and the largest id."
        yield Finding("lost", what, topic=sink.topic, records=size)
    if left := sum(int(step) - 1 for step in steps[holes[LISTED:]]):
        yield Finding("lost", f"{left} more id(s) are missing.", topic=sink.topic, records=left)


def missing_records(sink: Ids, source: Ids, due: Mapping[int, int], *, certain: bool) -> tuple[Any, Any]:
    """The records of the source that are lost, and the records that may not be written yet.

    ``due``: the offsets up to which the source must be in the sink. If they are unknown, records that are missing after the last
    delivered record of their partition may not be written yet.
    """
    import numpy as np

    numbers, partitions, offsets = source.arrays()
    delivered = np.isin(numbers, sink.arrays()[0])
    missing, waiting = ~delivered, np.zeros(len(numbers), dtype=bool)
    for partition in np.unique(partitions):
        own = partitions == partition
        missing &= ~(own & (offsets >= due.get(int(partition), 0)))
        if not certain:
            newest = offsets[own & delivered].max(initial=-1)
            waiting |= own & missing & (offsets > newest)
    return np.flatnonzero(missing & ~waiting), np.flatnonzero(waiting)


def records_without_source(sink: Ids, source: Ids) -> Any:
    """The records of the sink whose id is not in the source."""
    import numpy as np

    return np.flatnonzero(~np.isin(sink.arrays()[0], source.arrays()[0]))


def _listed(kind: str, ids: Ids, which: Any, words: Callable[[int], str], helps: str) -> Iterator[Finding]:
    """A finding for each of the first records, and one finding for all further records."""
    for index in map(int, which[:LISTED]):
        what = f"The record at {ids.place(index)} {words(index)}."
        partition, offset = ids.partitions[index], ids.offsets[index]
        yield Finding(kind, what, helps, topic=ids.topic, partition=partition, offset=offset, records=1)
    if (left := len(which) - LISTED) > 0:
        yield Finding(kind, f"{left} more record(s) of this kind.", helps, topic=ids.topic, records=left)


class _Reader:
    """Reads the ids of topics; if they are not complete, a finding is added to the verdict."""

    def __init__(
        self, kafka: Kafka, verdict: Verdict, sequence: bool, max_ids: int, timeout: float, progress: Progress | None
    ) -> None:
        self.kafka, self.verdict, self.timeout, self.progress = kafka, verdict, timeout, progress
        self.sequence, self.max_ids = sequence, max_ids
        self.admin = admin_client(kafka)

    def due(self, source: str, group: str | None) -> dict[int, int]:
        """The offsets up to which the source must be in the sink."""
        ends = topic_ends(self.admin, source)
        if group is None or ends is None:
            return dict(ends.stable) if ends is not None else {}
        committed = group_offsets(self.kafka, group, {source: ends.stable}).get(source, {})
        if not committed:
            what = f"The group {group} has committed nothing for {source}: it is unknown which records must be in the sink."
            helps = "give the group of the job that writes the sink, or leave the group out"
            self.verdict.findings.append(_unknown("no_group_offsets", what, helps, topic=source))
        return {int(p): offset for p, offset in committed.items()}

    def read(self, topic: str, role: str, id_of: IdOf) -> Ids | None:
        """Read the ids of a topic; None if there is no such topic."""
        ends = topic_ends(self.admin, topic)
        if ends is None:
            self.verdict.findings.append(missing_topic(topic, role))
            return None
        held_back = list(check_open(self.kafka, topic, ends, self.timeout))
        self.verdict.open_transactions += len(held_back)
        self.verdict.findings += [*held_back, *self._check_deleted(topic, role, ends.earliest)]
        ids = Ids(topic, sequence=self.sequence)

        def take(messages: Sequence[Any]) -> None:
            for message in messages:
                if message.error() is not None:
                    raise ScanStuck(f"{topic} cannot be read: {message.error().str()}")
                if message.offset() < ends.stable[message.partition()]:
                    ids.add(id_of(message), message.partition(), message.offset())
            if len(ids) > self.max_ids:
                raise TooManyIds

        read_range(self.kafka, topic, ends.earliest, ends.stable, take, self.progress)
        self.verdict.findings += check_without(ids)
        return ids

    def _check_deleted(self, topic: str, role: str, earliest: Mapping[int, int]) -> Iterator[Finding]:
        """What retention or compaction may have taken away cannot be verified: unknown, never clean."""
        for partition, first in earliest.items():
            if first > 0:
                what = f"{topic}-{partition} begins at offset {first}: retention has deleted records before it."
                helps = "verify more often than the topic's retention"
                yield _unknown(f"{role}_truncated", what, helps, topic=topic, partition=partition, offset=first)
        if compacted := removed_by_compaction(topic, cleanup_policy(topic_settings(self.admin, topic))):
            yield _unknown(f"{role}_compacted", compacted, "verify a topic that is not compacted", topic=topic)

    def is_cut_short(self, topic: str) -> bool:
        """Whether records of the topic may be gone."""
        return any(f.topic == topic and f.kind.endswith(("_truncated", "_compacted")) for f in self.verdict.findings)


def check_without(ids: Ids) -> Iterator[Finding]:
    """Records without an id cannot be compared: the verdict is unknown."""
    if ids.first_without is not None:
        partition, offset = ids.first_without
        what = f"{ids.without} record(s) have no such id, the first at {ids.topic}-{partition} offset {offset}."
        where = {"topic": ids.topic, "partition": partition, "offset": offset, "records": ids.without}
        yield _unknown("no_id", what, "check the path of the id", **where)


def _unknown(kind: str, what: str, helps: str, **where: Any) -> Finding:
    """A finding that is no violation, but makes the verdict unknown."""
    return Finding(kind, what, helps, violation=False, **where)
