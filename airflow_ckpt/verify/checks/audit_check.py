"""Turns the result of an audit into findings: records that should not be in the sink, and records that are missing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.verification.scan_result import (
    ALIEN,
    DUPLICATE,
    OUT_OF_ORDER,
    AuditResult,
    Example,
    ExpectedLane,
    ExpectedLanes,
    IncompleteLane,
)


def expected_lanes(batches: Sequence[Batch]) -> ExpectedLanes:
    """The lanes according to the ledger; the queries are numbered in the order in which they wrote."""
    queries = {query: number for number, query in enumerate(dict.fromkeys(b.query for b in batches))}
    return ExpectedLanes(
        [
            ExpectedLane(index, queries[b.query], b.number, lane, r.records)
            for index, b in enumerate(batches)
            for lane, r in b.lanes.items()
        ]
    )


@dataclass
class RecordFaults:
    """The number of faulty records of each kind, and the findings about them."""

    lost: int = 0
    duplicated: int = 0
    alien: int = 0
    out_of_order: int = 0
    torn: int = 0
    findings: list[Finding] = field(default_factory=list)


def check_records(batches: Sequence[Batch], result: AuditResult, topic: str) -> RecordFaults:
    """Turn the result into findings: first records that should not be there, in the order of the topic, then missing records."""
    counts = result.counts
    faults = RecordFaults(duplicated=counts[DUPLICATE], alien=counts[ALIEN], out_of_order=counts[OUT_OF_ORDER])
    for example in sorted(result.examples, key=lambda e: (e.partition, e.offset)):
        faults.findings.append(_finding(example, batches, topic))
    for lane in sorted(result.incomplete, key=lambda found: (found.index, found.lane)):
        batch = batches[lane.index]
        missing = batch.lanes[lane.lane].records - lane.seen
        faults.lost += missing
        faults.torn += not lane.seen
        faults.findings.append(_missing(lane, batch, missing, topic))
    return faults


def _finding(example: Example, batches: Sequence[Batch], topic: str) -> Finding:
    words, helps, index = _words(example, batches)
    what = f"The record at {topic}-{example.partition} offset {example.offset} {words}"
    where = {} if index is None else batches[index].where
    return Finding(
        example.kind, what, helps, topic=topic, partition=example.partition, offset=example.offset, records=1, **where
    )


def _words(example: Example, batches: Sequence[Batch]) -> tuple[str, str, int | None]:
    """The fault of the record, what to do about it, and the index of the batch to which the record refers."""
    another = "another producer writes to the sink"
    if example.name is None:
        return "has no audit header: no batch of the stream wrote it.", another, example.lies_in
    batch, lane, place = example.name
    if example.means is None:
        words = f"names batch {batch} lane {lane}, which is not in the ledger: no batch of the stream wrote it."
        return words, another, example.lies_in
    meant = batches[example.means]
    of = f" of query {meant.query}" if meant.shared else ""
    if example.kind == DUPLICATE:
        return f"is a second copy of {batch}/{lane}/{place}{of}.", "", example.means
    if example.kind == OUT_OF_ORDER:
        return f"({batch}/{lane}/{place}{of}) comes after a record that follows it in the lane.", "", example.means
    return f"names place {place} of a lane with {meant.lanes[lane].records} records{of}.", "", example.means


def _missing(lane: IncompleteLane, batch: Batch, missing: int, topic: str) -> Finding:
    where, records = f"{batch.name} lane {lane.lane}", batch.lanes[lane.lane].records
    if lane.seen:
        names = ", ".join(f"{batch.number}/{lane.lane}/{place}" for place in lane.missing)
        dots = " ..." if missing > len(lane.missing) else "."
        kind, what = "lost", f"{missing} of {records} record(s) of {where} are missing: {names}{dots}"
    else:
        kind, what = "torn_batch", f"All {records} record(s) of {where} are missing although the ledger has them."
    return Finding(kind, what, lane=lane.lane, topic=topic, records=missing, **batch.where)
