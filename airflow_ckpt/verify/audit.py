"""Accounts for each record by name, where the stream writes the audit header (batch, lane, place in the lane).

Per lane of a batch a bit for each place is kept while the scan is in it, so memory follows the size of a batch, not the
number of records in the sink. `Audit` gathers the facts in process; `account` says what they mean, wherever they are from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_ckpt.verify.ledger_check import Batch
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.checksum import AUDIT_HEADER
from ckpt_stream.sink_facts import (
    ALIEN,
    DUPLICATE,
    NAMED,
    OUT_OF_ORDER,
    AuditFacts,
    Example,
    LaneSeen,
    Name,
    parse_name,
)

#: (batch, lane) -> records that the ledger claims.
Expected = Mapping[tuple[int, int], int]


def expected_of(batches: Sequence[Batch]) -> dict[tuple[int, int], int]:
    return {(b.number, lane): r.records for b in batches for lane, r in b.lanes.items()}


@dataclass
class Account:
    """What the facts add up to."""

    lost: int = 0
    duplicated: int = 0
    alien: int = 0
    out_of_order: int = 0
    torn: int = 0
    findings: list[Finding] = field(default_factory=list)


def account(expected: Expected, facts: AuditFacts, topic: str) -> Account:
    """Turn facts into findings: records that should not be there, in the order of the topic, then what is missing."""
    counts = facts.counts
    result = Account(duplicated=counts[DUPLICATE], alien=counts[ALIEN], out_of_order=counts[OUT_OF_ORDER])
    for example in sorted(facts.examples, key=lambda e: (e.partition, e.offset)):
        result.findings.append(_finding(example, expected, topic))
    for lane in sorted(facts.incomplete, key=lambda found: (found.batch, found.lane)):
        claimed = expected[lane.batch, lane.lane]
        missing = claimed - lane.seen
        result.lost += missing
        result.torn += not lane.seen
        result.findings.append(_missing(lane, claimed, missing, topic))
    return result


def _finding(example: Example, expected: Expected, topic: str) -> Finding:
    words, helps, batch = _words(example, expected)
    what = f"The record at {topic}-{example.partition} offset {example.offset} {words}"
    where: Mapping[str, Any] = {"topic": topic, "partition": example.partition, "offset": example.offset}
    return Finding(example.kind, what, helps, batch, records=1, **where)


def _words(example: Example, expected: Expected) -> tuple[str, str, int | None]:
    """What is wrong with the record, what to do about it, and to which batch it points."""
    another = "another producer writes to the sink"
    if example.name is None:
        return "has no audit header: it was written by no batch.", another, example.here
    batch, lane, place = example.name
    if example.kind == DUPLICATE:
        return f"is a second copy of {batch}/{lane}/{place}.", "", batch
    if example.kind == OUT_OF_ORDER:
        return f"({batch}/{lane}/{place}) comes after a later one.", "", batch
    if (batch, lane) not in expected:
        return (
            f"names batch {batch} lane {lane}, which no ledger knows: it was written by no batch.",
            another,
            example.here,
        )
    return f"names place {place} of a lane with {expected[batch, lane]} records.", "", batch


def _missing(lane: LaneSeen, claimed: int, missing: int, topic: str) -> Finding:
    where = f"batch {lane.batch} lane {lane.lane}"
    if lane.seen:
        names = ", ".join(f"{lane.batch}/{lane.lane}/{place}" for place in lane.missing)
        dots = " ..." if missing > len(lane.missing) else "."
        kind, what = "lost", f"{missing} of {claimed} record(s) of {where} are missing: {names}{dots}"
    else:
        kind, what = (
            "torn_batch",
            f"All {claimed} record(s) of {where} are missing although the ledger has them.",
        )
    return Finding(kind, what, "", lane.batch, lane.lane, topic, records=missing)


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
    """Fed by the scan with each record and the batch in whose place it lies."""

    def __init__(self, batches: Sequence[Batch], topic: str) -> None:
        self.topic = topic
        self.facts = AuditFacts()
        self.findings: list[Finding] = []
        self._expected = expected_of(batches)
        self._open: dict[tuple[int, int], _Places] = {}

    def __call__(self, message: Any, here: int | None) -> None:
        name = _name(message)
        kind = self._kind(name, message.partition())
        if kind is not None:
            self.facts.note(Example(kind, message.partition(), message.offset(), here, name))

    def _kind(self, name: Name | None, partition: int) -> str | None:
        """What is wrong with the record of this name; None when it is one that was waited for."""
        if name is None or (name[0], name[1]) not in self._expected:
            return ALIEN
        batch, lane, place = name
        places = self._open.get((batch, lane))
        if places is None:
            places = self._open[batch, lane] = _Places(self._expected[batch, lane])
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
        for (batch, lane), expected in self._expected.items():
            places = self._open.get((batch, lane)) or _Places(expected)
            if places.seen < expected:
                first = tuple(place for _, place in zip(range(NAMED), places.missing(), strict=False))
                self.facts.incomplete.append(LaneSeen(batch, lane, places.seen, first))
        self.findings = account(self._expected, self.facts, self.topic).findings
        return self.facts


def _name(message: Any) -> Name | None:
    for key, value in message.headers() or ():
        if key == AUDIT_HEADER and value is not None:
            return parse_name(value)
    return None
