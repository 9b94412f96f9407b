"""Verifies a sink that was not written by us: duplicates and gaps by an id that its records carry.

Of each id a 64-bit hash is kept with its place, about 20 bytes a record, and not the id itself. Two different ids that
share a hash would be taken for a duplicate: among 20,000,000 ids that happens with a chance of one in 90,000. With
``sequence=True`` the ids are whole numbers and are kept as such, so nothing is left to chance.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.kafka.offsets import Ends, Kafka, admin_client, ends_of, group_offsets, topic_settings
from airflow_ckpt.verify.id_check import (
    Ids,
    check_aliens,
    check_duplicates,
    check_expected,
    check_holes,
    check_lost,
    check_without,
)
from airflow_ckpt.verify.ids import IdOf, id_reader
from airflow_ckpt.verify.sink_scan import Progress, ScanStuck, read_range
from airflow_ckpt.verify.transactions import check_open
from airflow_ckpt.verify.verdict import FOREIGN, Finding, Verdict
from airflow_ckpt.verify.verification import missing_topic

MAX_IDS = 20_000_000

Offsets = Mapping[int, int]


class TooManyIds(Exception):
    """More records than may be kept in memory."""


@dataclass(frozen=True)
class Gaps:
    """Against what the sink is compared; nothing: only duplicates are looked for."""

    #: A topic whose ids must all be in the sink, and no others.
    source: str | None = None
    #: Where the source's records have their id; None: where the sink's have it.
    source_id_path: str | None = None
    #: The consumer group of the job that writes the sink: what it has not committed is not missed.
    group: str | None = None
    #: Ids that must all be in the sink, and no others.
    expected_ids: Iterable[object] | None = None
    #: The ids are whole numbers without a hole between the least and the largest.
    sequence: bool = False


def verify_foreign(
    kafka: Kafka,
    topic: str,
    *,
    id_path: str,
    source: str | None = None,
    source_id_path: str | None = None,
    group: str | None = None,
    expected_ids: Iterable[object] | None = None,
    sequence: bool = False,
    start: Offsets | None = None,
    end: Offsets | None = None,
    source_start: Offsets | None = None,
    max_ids: int = MAX_IDS,
    transaction_timeout: float = 60.0,
    progress: Progress | None = None,
) -> Verdict:
    """The verdict on a sink that somebody else writes, read once under read_committed up to its last stable offset.

    ``id_path`` is ``key``, ``value``, ``header:<name>`` or a path into the JSON value such as ``$.order.id``. Duplicates
    are always looked for. Gaps are found against a ``source`` topic (its ids at ``source_id_path``, by default the same
    path), against ``expected_ids``, or with ``sequence`` as holes between the least and the largest number.
    Name the writer's consumer ``group`` if it may be running: what the group has not committed yet is then not missed;
    without it, a gap at the very end of a source partition is one of which it cannot be told whether it is lost or late.
    ``start``, ``end`` and ``source_start`` are offsets by partition.
    """
    begun = time.perf_counter()
    verdict = Verdict(topic, FOREIGN, time=datetime.now(UTC).isoformat(timespec="seconds"))
    gaps = Gaps(source, source_id_path, group, expected_ids, sequence)
    look = _Look(kafka, verdict, transaction_timeout, progress, max_ids, sequence)
    try:
        _verify(verdict, look, topic, id_path, gaps, (start, end, source_start))
    except TooManyIds:
        verdict.findings.append(
            Finding(
                "too_many_ids",
                f"There are more than {max_ids:,} records to be told apart, too many to be kept in memory.",
                "give start and end offsets to verify the topic in parts, or raise max_ids (about 40 bytes each while they "
                "are sorted). A sink written by ckpt_stream can be verified at any size, as a Spark job",
                topic=topic,
                violation=False,
            )
        )
    verdict.seconds = round(time.perf_counter() - begun, 3)
    if verdict.sink_committed and verdict.seconds:
        verdict.records_per_second = round(verdict.sink_committed / verdict.seconds)
    return verdict


def _verify(
    verdict: Verdict,
    look: _Look,
    topic: str,
    id_path: str,
    gaps: Gaps,
    offsets: tuple[Offsets | None, Offsets | None, Offsets | None],
) -> None:
    start, end, source_start = offsets
    id_of, source_id_of = id_reader(id_path), id_reader(gaps.source_id_path or id_path)
    # In this order: what is due of the source must be in the sink by the time at which the sink's end is taken.
    due = look.due(gaps.source, gaps.group) if gaps.source else {}
    sink = look.read(topic, "sink", id_of, start, end)
    if sink is None:
        return
    add = verdict.findings.extend
    verdict.sink_committed = sink.records
    add(check_without(sink))
    verdict.duplicated, found = check_duplicates(sink)
    add(found)
    if gaps.sequence and look.whole(sink):
        verdict.lost, found = check_holes(sink)
        add(found)
    if gaps.expected_ids is not None:
        (lost, missing), (verdict.alien, aliens) = check_expected(sink, gaps.expected_ids)
        add(aliens)
        _add_lost(verdict, look, sink, lost, missing)
    source = look.read(gaps.source, "source", source_id_of, source_start, None) if gaps.source else None
    if source is None:
        return
    verdict.source_records = source.records
    add(check_without(source))
    (lost, missing), waiting = check_lost(sink, source, due, certain=gaps.group is not None)
    add(waiting)
    _add_lost(verdict, look, sink, lost, missing)
    alien, aliens = check_aliens(sink, source)
    # A record whose source is gone, or has no id, looks alien and is not.
    if not look.cut_short(source.topic) and (alien == 0 or alien > source.without):
        verdict.alien = (verdict.alien or 0) + alien
        add(aliens)


def _add_lost(verdict: Verdict, look: _Look, sink: Ids, lost: int, findings: Sequence[Finding]) -> None:
    """A record that is gone from the sink by retention, or there without an id, looks lost and is not."""
    if not look.cut_short(sink.topic) and (lost == 0 or lost > sink.without):
        verdict.lost = (verdict.lost or 0) + lost
        verdict.findings.extend(findings)


class _Look:
    """The questions to Kafka, with what keeps them from being answered as findings."""

    def __init__(
        self,
        kafka: Kafka,
        verdict: Verdict,
        timeout: float,
        progress: Progress | None,
        max_ids: int,
        sequence: bool,
    ) -> None:
        self.kafka, self.verdict, self.timeout, self.progress = kafka, verdict, timeout, progress
        self.max_ids, self.sequence = max_ids, sequence
        self.admin = admin_client(kafka)

    def due(self, source: str, group: str | None) -> dict[int, int]:
        """Up to where the source must be in the sink."""
        ends = ends_of(self.admin, source)
        if group is None:
            return dict(ends.stable) if ends is not None else {}
        partitions = {source: ends.stable} if ends is not None else {}
        committed = group_offsets(self.kafka, group, partitions).get(source, {})
        if not committed:
            self.verdict.findings.append(
                Finding(
                    "no_group_offsets",
                    f"The group {group} has committed nothing for {source}: it is not known what must be in the sink.",
                    "name the group of the job that writes the sink, or leave it out",
                    topic=source,
                    violation=False,
                )
            )
        return {int(p): offset for p, offset in committed.items()}

    def read(self, topic: str, role: str, id_of: IdOf, start: Offsets | None, end: Offsets | None) -> Ids | None:
        """The ids of a topic; None when there is no such topic."""
        ends = ends_of(self.admin, topic)
        if ends is None:
            self.verdict.findings.append(missing_topic(topic, role))
            return None
        stuck = list(check_open(self.kafka, topic, ends, self.timeout))
        self.verdict.open_transactions += len(stuck)
        self.verdict.findings.extend(stuck)
        self.verdict.findings.extend(self._check_kept(topic, role, ends, start))
        first = {p: max(offset, (start or {}).get(p, 0)) for p, offset in ends.earliest.items()}
        stop = {p: min(offset, (end or {}).get(p, offset)) for p, offset in ends.stable.items()}
        ids = Ids(topic, self.sequence)

        def take(messages: Sequence[Any]) -> None:
            _take(ids, messages, id_of, stop)
            if len(ids.marks) > self.max_ids:
                raise TooManyIds

        read_range(self.kafka, topic, first, stop, take, self.progress)
        return ids

    def _check_kept(self, topic: str, role: str, ends: Ends, start: Offsets | None) -> Iterator[Finding]:
        """What retention or compaction may have taken away keeps us from telling; it is not called clean."""
        for partition, first in ends.earliest.items():
            if first > (start or {}).get(partition, 0):
                yield Finding(
                    f"{role}_truncated",
                    f"{topic}-{partition} begins at offset {first}: retention has deleted records before it.",
                    "verify more often than the topic's retention, or name where to begin",
                    topic=topic, partition=partition, offset=first, violation=False,
                )  # fmt: skip
        policy = topic_settings(self.admin, topic).get("cleanup.policy", "delete")
        if "compact" in policy:
            yield Finding(
                f"{role}_compacted",
                f"{topic} has cleanup.policy={policy}: compaction removes records that were delivered.",
                "verify a topic that is not compacted",
                topic=topic, violation=False,
            )  # fmt: skip

    def cut_short(self, topic: str) -> bool:
        """Whether records of the topic are gone."""
        return any(f.topic == topic and f.kind.endswith(("_truncated", "_compacted")) for f in self.verdict.findings)

    def whole(self, ids: Ids) -> bool:
        """Whether every record of the topic is there and has an id."""
        return not self.cut_short(ids.topic) and not ids.without


def _take(ids: Ids, messages: Sequence[Any], id_of: IdOf, stop: Offsets) -> None:
    mark = ids.mark
    marks, partitions, offsets = ids.marks, ids.partitions, ids.offsets
    for message in messages:
        if message.error() is not None:
            raise ScanStuck(f"{ids.topic} cannot be read: {message.error().str()}")
        partition, offset = message.partition(), message.offset()
        if offset >= stop[partition]:
            continue
        found = id_of(message)
        kept = None if found is None else mark(found)
        if kept is None:
            ids.add(None, (partition, offset))
            continue
        marks.append(kept)
        partitions.append(partition)
        offsets.append(offset)
