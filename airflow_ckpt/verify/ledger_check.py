"""The ledger checked against itself and against the checkpoint and the consumer group. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.ledger import ANCHOR, LedgerRecord, Offsets

Lanes = Sequence[Sequence[LedgerRecord]]


@dataclass(frozen=True)
class Batch:
    """All lanes of one batch."""

    number: int
    lanes: Mapping[int, LedgerRecord]

    @property
    def any(self) -> LedgerRecord:
        return next(iter(self.lanes.values()))

    @property
    def missing(self) -> list[int]:
        return [lane for lane in range(self.any.lanes) if lane not in self.lanes]

    @property
    def records(self) -> int:
        return sum(r.records for r in self.lanes.values())

    def sink_start(self, topic: str) -> dict[int, int]:
        """Where the sink ended when the batch began: the earliest of its attempts counts."""
        starts: dict[int, int] = {}
        for record in self.lanes.values():
            for partition, offset in record.sink_start.get(topic, {}).items():
                number = int(partition)
                starts[number] = min(starts.get(number, offset), offset)
        return starts


def batches_of(lanes: Lanes) -> list[Batch]:
    """The batches in the order of their numbers; anchors claim no records and are no batches."""
    found: dict[int, dict[int, LedgerRecord]] = {}
    for records in lanes:
        for record in records:
            if record.kind != ANCHOR:
                found.setdefault(record.batch, {}).setdefault(record.lane, record)
    return [Batch(number, found[number]) for number in sorted(found)]


def check_lanes(lanes: Lanes) -> Iterator[Finding]:
    """Within each lane the batches follow each other, each once, by one query."""
    for lane, records in enumerate(lanes):
        previous: LedgerRecord | None = None
        for record in records:
            where: dict[str, Any] = {"batch": record.batch, "lane": lane}
            if previous is not None and record.kind != ANCHOR and record.query_id == previous.query_id:
                if record.batch == previous.batch and previous.kind != ANCHOR:
                    yield Finding(
                        "ledger_repeat",
                        f"Lane {lane} holds batch {record.batch} twice: it was written by two transactions.",
                        "the batch was written twice; see how the second came past the ledger check",
                        **where,
                    )
                elif record.batch < previous.batch:
                    yield Finding(
                        "ledger_order",
                        f"Lane {lane} holds batch {record.batch} after batch {previous.batch}.",
                        "somebody wrote to the ledger topic, or the checkpoint was rolled back",
                        **where,
                    )
            previous = record


def check_batches(batches: Sequence[Batch], newest_complete: int) -> Iterator[Finding]:
    """No batch is missing, no lane of one, and the source ranges of successive ones touch exactly."""
    previous: Batch | None = None
    for batch in batches:
        if batch.number > newest_complete:
            break
        if batch.missing:
            yield Finding(
                "torn_batch",
                f"Batch {batch.number} is in the ledger without lanes {batch.missing} of {batch.any.lanes}, although a "
                "later batch is there.",
                "records of those lanes are missing from the sink, or their ledger records were removed",
                batch=batch.number,
            )
        if len({r.digest for r in batch.lanes.values()}) > 1:
            yield Finding(
                "mixed_input",
                f"The lanes of batch {batch.number} were made from different source offsets.",
                "the batch was replayed over other input: compare the checkpoint's copies",
                batch=batch.number,
            )
        if previous is not None and previous.any.query_id == batch.any.query_id:
            yield from _touching(previous, batch)
        previous = batch


def _touching(previous: Batch, batch: Batch) -> Iterator[Finding]:
    if batch.number != previous.number + 1:
        yield Finding(
            "ledger_gap",
            f"Batches {previous.number + 1} to {batch.number - 1} are not in the ledger.",
            "their records cannot be accounted for: verify at depth `recompute`",
            batch=previous.number + 1,
        )
        return
    end, start = previous.any.end, batch.any.start
    for topic, partition, ended, began in _edges(end, start):
        if began > ended:
            yield Finding(
                "source_gap",
                f"Batch {batch.number} begins at offset {began} of {topic}-{partition}, the one before it ended at {ended}: "
                f"{began - ended} offset(s) were never read.",
                "records are lost: find out who moved the offsets",
                batch=batch.number, topic=topic, partition=partition, offset=ended, records=began - ended,
            )  # fmt: skip
        elif began < ended:
            yield Finding(
                "source_overlap",
                f"Batch {batch.number} begins at offset {began} of {topic}-{partition}, the one before it ended at {ended}: "
                f"{ended - began} offset(s) were read twice.",
                "records are doubled: find out who moved the offsets",
                batch=batch.number, topic=topic, partition=partition, offset=began, records=ended - began,
            )  # fmt: skip


def _edges(end: Offsets, start: Offsets) -> Iterator[tuple[str, int, int, int]]:
    """Partitions that both sides know; one that is new begins wherever it begins."""
    for topic, partitions in end.items():
        for partition, ended in partitions.items():
            began = start.get(topic, {}).get(partition)
            if began is not None:
                yield topic, int(partition), int(ended), int(began)


def source_span(batches: Sequence[Batch]) -> int:
    """Offsets read from the source by these batches (control records and holes included)."""
    total = 0
    for batch in batches:
        for _, _, began, ended in _edges(batch.any.start, batch.any.end):
            total += ended - began
    return total


def check_group(group: Offsets, committed_end: Offsets, batch: int) -> Iterator[Finding]:
    """The mirrored offsets are those of the newest committed batch, or of an earlier one, never of a later."""
    for topic, partitions in committed_end.items():
        for partition, end in partitions.items():
            mirrored = group.get(topic, {}).get(partition)
            if mirrored is not None and int(mirrored) > int(end):
                yield Finding(
                    "group_ahead",
                    f"The consumer group is at offset {mirrored} of {topic}-{partition}, batch {batch} ended at {end}.",
                    "somebody else commits for the stream's group: give the stream a group of its own",
                    batch=batch, topic=topic, partition=int(partition), offset=int(mirrored),
                )  # fmt: skip
