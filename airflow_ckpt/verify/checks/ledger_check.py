"""Checks that the ledger is consistent in itself and with the consumer group. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.protocol.ledger.ledger_batches import Batch, Lanes
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.offsets import Offsets


def check_lanes(lanes: Lanes) -> Iterator[Finding]:
    """In each lane, the batches of a query must be consecutive and occur once, and no query may continue after another query."""
    for lane, records in enumerate(lanes):
        newest: dict[str, LedgerRecord] = {}
        previous: LedgerRecord | None = None
        for record in records:
            before = newest.get(record.query_id)
            if previous is not None and before is not None and record.kind != ANCHOR:
                where: dict[str, Any] = {"batch": record.batch, "lane": lane, "query": record.query_id}
                if previous.query_id != record.query_id:
                    yield Finding(
                        "foreign_ledger",
                        f"Lane {lane} holds batch {record.batch} of query {record.query_id} after a batch of the later query "
                        f"{previous.query_id}: two queries write to one sink.",
                        "stop one of the two streams, and give it another sink and sink_id",
                        **where,
                    )
                elif record.batch == before.batch and before.kind != ANCHOR:
                    yield Finding(
                        "ledger_repeat",
                        f"Lane {lane} holds batch {record.batch} twice: it was written by two transactions.",
                        "find out how the second transaction passed the ledger check",
                        **where,
                    )
                elif record.batch < before.batch:
                    yield Finding(
                        "ledger_order",
                        f"Lane {lane} holds batch {record.batch} after batch {before.batch}.",
                        "another program wrote to the ledger topic, or the checkpoint was rolled back",
                        **where,
                    )
            newest[record.query_id] = previous = record


def check_batches(batches: Sequence[Batch]) -> Iterator[Finding]:
    """No batch and no lane of a batch may be missing, and each batch must begin in the source where the batch before it ended."""
    previous: Batch | None = None
    for batch in batches:
        if batch.missing:
            yield Finding(
                "torn_batch",
                f"{batch.title} is in the ledger without lanes {batch.missing} of {batch.any_lane.lanes}, although a "
                "later batch is there.",
                "records of those lanes are missing from the sink, or their ledger records were removed",
                **batch.where,
            )
        if len({r.digest for r in batch.lanes.values()}) > 1:
            yield Finding(
                "mixed_input",
                f"The lanes of {batch.name} were made from different source offsets.",
                "the batch was replayed with other input: compare the copies of the checkpoint",
                **batch.where,
            )
        if len({r.format for r in batch.lanes.values()}) > 1:
            yield Finding(
                "mixed_format",
                f"The lanes of {batch.name} are of different ledger formats, so that their checksums cannot be added up.",
                "finish a batch with the version of airflow-ckpt that began it; verify a range that begins after it",
                violation=False,
                **batch.where,
            )
        if previous is not None and not batch.cut_off:
            yield from _following(previous, batch)
        previous = batch


def _following(previous: Batch, batch: Batch) -> Iterator[Finding]:
    if previous.query == batch.query:
        if batch.number == previous.number + 1:
            yield from _touching(previous, batch)
        else:
            yield _gap(previous.query, previous.number + 1, batch.number - 1, batch)
        return
    before = batch.adopted
    if before is not None and before.query_id == previous.query and before.batch < previous.number:
        yield Finding(
            "foreign_ledger",
            f"Query {batch.query} adopted the ledger after batch {before.batch} of query {previous.query}, which continued to "
            f"batch {previous.number}: two queries write to one sink.",
            "stop one of the two streams, and give it another sink and sink_id",
            **batch.where,
        )
        return
    if before is not None and (before.query_id, before.batch) != previous.id:
        first = previous.number + 1 if before.query_id == previous.query else 0
        yield _gap(before.query_id, first, before.batch, batch)
        return
    for finding in _touching(previous, batch):
        if finding.kind == "source_gap" and before is None:
            yield Finding(
                "unknown_takeover",
                f"{finding.what} It is unknown which query wrote the batch before {batch.name}.",
                "name the checkpoint, which may have that; unless a query in between read these records, they are lost",
                topic=finding.topic, partition=finding.partition, offset=finding.offset, records=finding.records,
                violation=False, **batch.where,
            )  # fmt: skip
        else:
            yield finding


def _gap(query: str, first: int, last: int, batch: Batch) -> Finding:
    of = f" of query {query}" if batch.shared else ""
    return Finding(
        "ledger_gap",
        f"Batches {first} to {last}{of} are not in the ledger.",
        "their records cannot be accounted for: verify at depth `recompute`",
        batch=first, query=query,
    )  # fmt: skip


def _touching(previous: Batch, batch: Batch) -> Iterator[Finding]:
    end, start = previous.any_lane.end, batch.any_lane.start
    for topic, partition, ended, began in _edges(end, start):
        if began > ended:
            yield Finding(
                "source_gap",
                f"{batch.title} begins at offset {began} of {topic}-{partition}, the batch before it ended at {ended}: "
                f"{began - ended} offset(s) were never read.",
                "records are lost: find out which user or program moved the offsets",
                topic=topic, partition=partition, offset=ended, records=began - ended, **batch.where,
            )  # fmt: skip
        elif began < ended:
            yield Finding(
                "source_overlap",
                f"{batch.title} begins at offset {began} of {topic}-{partition}, the batch before it ended at {ended}: "
                f"{ended - began} offset(s) were read twice.",
                "records are doubled: find out which user or program moved the offsets",
                topic=topic, partition=partition, offset=began, records=ended - began, **batch.where,
            )  # fmt: skip


def _edges(end: Offsets, start: Offsets) -> Iterator[tuple[str, int, int, int]]:
    """The partitions that both batches name; a new partition may begin at any offset."""
    for topic, partitions in end.items():
        for partition, ended in partitions.items():
            began = start.get(topic, {}).get(partition)
            if began is not None:
                yield topic, int(partition), int(ended), int(began)


def source_span(batches: Sequence[Batch]) -> int:
    """Offsets read from the source by these batches (control records and holes included)."""
    total = 0
    for batch in batches:
        for _, _, began, ended in _edges(batch.any_lane.start, batch.any_lane.end):
            total += ended - began
    return total


def check_group(group: Offsets, newest: Batch) -> Iterator[Finding]:
    """The mirrored offsets must be those of the newest committed batch or of an earlier batch."""
    for topic, partitions in newest.any_lane.end.items():
        for partition, end in partitions.items():
            mirrored = group.get(topic, {}).get(partition)
            if mirrored is not None and int(mirrored) > int(end):
                yield Finding(
                    "group_ahead",
                    f"The consumer group is at offset {mirrored} of {topic}-{partition}, {newest.name} ended at {end}.",
                    "another program commits for the stream's group: give the stream another group",
                    topic=topic, partition=int(partition), offset=int(mirrored), **newest.where,
                )  # fmt: skip
