"""Accounts for each record by name, where the stream writes the audit header (batch, lane, place in the lane).

Per lane of a batch a bit for each place is kept while the scan is in it, so memory follows the size of a batch, not the
number of records in the sink. `Audit` gathers the facts in process; `account` says what they mean, wherever they are from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_ckpt.verify.batches import Batch
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.checksum import AUDIT_HEADER
from ckpt_stream.sink_facts import (
    ALIEN,
    DUPLICATE,
    NAMED,
    OUT_OF_ORDER,
    AuditFacts,
    Claim,
    Claims,
    Example,
    LaneSeen,
    Name,
    parse_name,
)


def claims_of(batches: Sequence[Batch]) -> Claims:
    """What the ledger claims of each lane; the queries of the batches are counted in their order."""
    eras = {query: era for era, query in enumerate(dict.fromkeys(b.query for b in batches))}
    return Claims(
        [
            Claim(turn, eras[b.query], b.number, lane, r.records)
            for turn, b in enumerate(batches)
            for lane, r in b.lanes.items()
        ]
    )


@dataclass
class Account:
    """What the facts add up to."""

    lost: int = 0
    duplicated: int = 0
    alien: int = 0
    out_of_order: int = 0
    torn: int = 0
    findings: list[Finding] = field(default_factory=list)


def account(batches: Sequence[Batch], facts: AuditFacts, topic: str) -> Account:
    """Turn facts into findings: records that should not be there, in the order of the topic, then what is missing."""
    counts = facts.counts
    result = Account(duplicated=counts[DUPLICATE], alien=counts[ALIEN], out_of_order=counts[OUT_OF_ORDER])
    for example in sorted(facts.examples, key=lambda e: (e.partition, e.offset)):
        result.findings.append(_finding(example, batches, topic))
    for lane in sorted(facts.incomplete, key=lambda found: (found.turn, found.lane)):
        batch = batches[lane.turn]
        missing = batch.lanes[lane.lane].records - lane.seen
        result.lost += missing
        result.torn += not lane.seen
        result.findings.append(_missing(lane, batch, missing, topic))
    return result


def _finding(example: Example, batches: Sequence[Batch], topic: str) -> Finding:
    words, helps, turn = _words(example, batches)
    what = f"The record at {topic}-{example.partition} offset {example.offset} {words}"
    where = {} if turn is None else batches[turn].where
    return Finding(
        example.kind, what, helps, topic=topic, partition=example.partition, offset=example.offset, records=1, **where
    )


def _words(example: Example, batches: Sequence[Batch]) -> tuple[str, str, int | None]:
    """What is wrong with the record, what to do about it, and to which batch it points."""
    another = "another producer writes to the sink"
    if example.name is None:
        return "has no audit header: it was written by no batch.", another, example.here
    batch, lane, place = example.name
    if example.turn is None:
        return (
            f"names batch {batch} lane {lane}, which no ledger knows: it was written by no batch.",
            another,
            example.here,
        )
    meant = batches[example.turn]
    of = f" of query {meant.query}" if meant.shared else ""
    if example.kind == DUPLICATE:
        return f"is a second copy of {batch}/{lane}/{place}{of}.", "", example.turn
    if example.kind == OUT_OF_ORDER:
        return f"({batch}/{lane}/{place}{of}) comes after a later one.", "", example.turn
    return f"names place {place} of a lane with {meant.lanes[lane].records} records{of}.", "", example.turn


def _missing(lane: LaneSeen, batch: Batch, missing: int, topic: str) -> Finding:
    where, claimed = f"{batch.name} lane {lane.lane}", batch.lanes[lane.lane].records
    if lane.seen:
        names = ", ".join(f"{batch.number}/{lane.lane}/{place}" for place in lane.missing)
        dots = " ..." if missing > len(lane.missing) else "."
        kind, what = "lost", f"{missing} of {claimed} record(s) of {where} are missing: {names}{dots}"
    else:
        kind, what = (
            "torn_batch",
            f"All {claimed} record(s) of {where} are missing although the ledger has them.",
        )
    return Finding(kind, what, lane=lane.lane, topic=topic, records=missing, **batch.where)


@dataclass
class _Places:
    """Which places of one lane of one batch have been seen."""

    expected: int
    bits: bytearray = field(init=False)
    seen: int = 0
    #: partition -> last place: within a partition a lane's places only go up.
    last: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bits = bytearray((self.expected + 7) // 8)

    def take(self, place: int) -> bool:
        """Mark a place; False when it was marked already."""
        byte, bit = place >> 3, 1 << (place & 7)
        if self.bits[byte] & bit:
            return False
        self.bits[byte] |= bit
        self.seen += 1
        return True

    @property
    def complete(self) -> bool:
        return self.seen == self.expected

    def missing(self) -> Iterator[int]:
        for place in range(self.expected):
            if not self.bits[place >> 3] & (1 << (place & 7)):
                yield place


class Audit:
    """Fed by the scan with each record and the turn of the batch in whose place it lies."""

    def __init__(self, batches: Sequence[Batch], topic: str) -> None:
        self.batches, self.topic = batches, topic
        self.facts = AuditFacts()
        self.findings: list[Finding] = []
        self._claims = claims_of(batches)
        self._open: dict[tuple[int, int], _Places] = {}

    def __call__(self, message: Any, here: int | None) -> None:
        name = _name(message)
        turn = None if name is None else self._claims.meant(name, here)
        kind = ALIEN if name is None or turn is None else self._kind(turn, name[1], name[2], message.partition())
        if kind is not None:
            self.facts.note(Example(kind, message.partition(), message.offset(), here, name, turn))

    def _kind(self, turn: int, lane: int, place: int, partition: int) -> str | None:
        """What is wrong with the record of this place; None when it is one that was waited for."""
        places = self._open.get((turn, lane))
        if places is None:
            places = self._open[turn, lane] = _Places(self._claims.records[turn, lane])
        if place >= places.expected:
            return ALIEN
        if places.complete or not places.take(place):
            return DUPLICATE
        last = places.last.get(partition, -1)
        places.last[partition] = max(place, last)
        if places.complete:
            places.bits = bytearray()  # any further record of it is a second copy
        return OUT_OF_ORDER if place < last else None

    def finish(self) -> AuditFacts:
        """Add what was expected and did not come."""
        for (turn, lane), expected in self._claims.records.items():
            places = self._open.get((turn, lane)) or _Places(expected)
            if places.seen < expected:
                first = tuple(place for _, place in zip(range(NAMED), places.missing(), strict=False))
                self.facts.incomplete.append(LaneSeen(turn, lane, places.seen, first))
        self.findings = account(self.batches, self.facts, self.topic).findings
        return self.facts


def _name(message: Any) -> Name | None:
    for key, value in message.headers() or ():
        if key == AUDIT_HEADER and value is not None:
            return parse_name(value)
    return None
