"""Accounts for each record by name, where the stream writes the audit header (batch, lane, place in the lane).

Per lane of a batch a bit for each place is kept while the scan is in it, so memory follows the size of a batch, not the
number of records in the sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_ckpt.verify.ledger_check import Batch
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.lane import AUDIT_HEADER

#: Findings of one kind that are listed one by one; the rest is only counted.
LISTED = 20


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
        self.duplicated = self.alien = self.out_of_order = self.lost = self.torn = 0
        self.findings: list[Finding] = []
        self._expected = {(b.number, lane): r.records for b in batches for lane, r in b.lanes.items()}
        self._open: dict[tuple[int, int], _Places] = {}
        self._known = {b.number for b in batches}

    def __call__(self, message: Any, here: int | None) -> None:
        name = _name(message)
        if name is None or (name[0], name[1]) not in self._expected:
            self.alien += 1
            whose = (
                "has no audit header"
                if name is None
                else f"names batch {name[0]} lane {name[1]}, which no ledger knows"
            )
            self._list(
                "alien", message, f"{whose}: it was written by no batch.", "another producer writes to the sink", here
            )
            return
        batch, lane, place = name
        places = self._open.get((batch, lane))
        if places is None:
            places = self._open[batch, lane] = _Places(self._expected[batch, lane])
        if place >= places.expected:
            self.alien += 1
            self._list("alien", message, f"names place {place} of a lane with {places.expected} records.", "", batch)
        elif places.complete or not places.take(place):
            self.duplicated += 1
            self._list("duplicate", message, f"is a second copy of {batch}/{lane}/{place}.", "", batch)
        else:
            partition = message.partition()
            if place < places.last.get(partition, -1):
                self.out_of_order += 1
                self._list("out_of_order", message, f"({batch}/{lane}/{place}) comes after a later one.", "", batch)
            places.last[partition] = max(place, places.last.get(partition, -1))
            if places.complete:
                places.bits = bytearray()  # any further record of it is a second copy

    def finish(self) -> None:
        """What was expected and did not come."""
        for (batch, lane), expected in self._expected.items():
            places = self._open.get((batch, lane)) or _Places(expected)
            missing = expected - places.seen
            if not missing:
                continue
            self.lost += missing
            if places.seen:
                names = [f"{batch}/{lane}/{n}" for _, n in zip(range(5), places.missing(), strict=False)]
                what = f"{missing} of {expected} record(s) of batch {batch} lane {lane} are missing: {', '.join(names)}"
                kind, what = "lost", what + (" ..." if missing > 5 else ".")
            else:
                self.torn += 1
                what = (
                    f"All {expected} record(s) of batch {batch} lane {lane} are missing although the ledger has them."
                )
                kind = "torn_batch"
            self.findings.append(Finding(kind, what, "", batch, lane, self.topic, records=missing))

    def _list(self, kind: str, message: Any, words: str, helps: str, batch: int | None) -> None:
        if sum(f.kind == kind for f in self.findings) >= LISTED:
            return
        where: Mapping[str, Any] = {"topic": self.topic, "partition": message.partition(), "offset": message.offset()}
        what = f"The record at {self.topic}-{message.partition()} offset {message.offset()} {words}"
        self.findings.append(Finding(kind, what, helps, batch, records=1, **where))


def _name(message: Any) -> tuple[int, int, int] | None:
    for key, value in message.headers() or ():
        if key == AUDIT_HEADER and value is not None:
            try:
                batch, lane, place = value.split(b"/")
                return int(batch), int(lane), int(place)
            except ValueError:
                return None
    return None
