"""What a scan of the sink has found, as plain facts: the one format of the scan in process and of the Spark job.

What they mean is decided in one place, where they are compared with the ledger.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from ckpt_stream.checksum import add, placed
from ckpt_stream.errors import StreamError
from ckpt_stream.ledger import FORMAT as LEDGER_FORMAT

FORMAT = 2

ALIEN, DUPLICATE, OUT_OF_ORDER = "alien", "duplicate", "out_of_order"
KINDS = (ALIEN, DUPLICATE, OUT_OF_ORDER)
#: Records of one kind that are listed one by one; the rest is only counted.
LISTED = 20
#: Missing places of a lane that are named; the rest is only counted.
NAMED = 5

#: batch, lane and place in the lane: what the audit header names.
Name = tuple[int, int, int]
#: Fewer digits than a 64-bit number has, so that Spark reads the same names as Python.
NAME = re.compile(rb"(\d{1,18})/(\d{1,18})/(\d{1,18})")


class FactsFormatError(StreamError):
    """A file is not the result of a scan, or of another version."""

    restart_may_help = False


@dataclass
class Sums:
    """How many records, the order-free sum of their hashes, and the one that their partitions are a part of."""

    records: int = 0
    checksum: int = 0
    placed: int = 0

    def add(self, records: int, checksum: int, partition: int) -> None:
        """Add what lies in one partition."""
        self.records += records
        self.checksum = add(self.checksum, checksum)
        self.placed = add(self.placed, checksum * _weight(partition))

    def merge(self, other: Sums) -> None:
        self.records += other.records
        self.checksum = add(self.checksum, other.checksum)
        self.placed = add(self.placed, other.placed)


@cache
def _weight(partition: int) -> int:
    return placed(1, partition)


@dataclass(frozen=True)
class Boundaries:
    """Per partition, the offsets at which each batch begins. A scan knows batches by their turn: 0 is the first of the range.

    Their numbers would not do: a query that took the ledger over has counted from 0 again.
    """

    offsets: Mapping[int, Sequence[int]]
    #: The ledger format of each batch, by which its records are hashed; of all of them the newest, where none is given.
    formats: Sequence[int] = ()

    def turn(self, partition: int, offset: int) -> tuple[int | None, int]:
        """The batch to which an offset belongs (None: before the first), and where the next one begins."""
        begins = self.offsets.get(partition, ())
        index = bisect_right(begins, offset)
        following = begins[index] if index < len(begins) else 1 << 62
        return (index - 1 if index else None), following

    def format_of(self, turn: int | None) -> int:
        return self.formats[turn or 0] if self.formats else LEDGER_FORMAT


@dataclass(frozen=True)
class Claim:
    """A lane of a batch, as the ledger claims it."""

    turn: int
    #: Counts the queries of the range: 0 is the first, and each one that took over has the next number.
    era: int
    batch: int
    lane: int
    records: int


class Claims:
    """What the audit headers of a range mean. Queries use the same names: meant is the query in whose place the record lies
    or, if that one has no such lane, the one before it."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.all = claims
        #: (turn, lane) -> records that the ledger claims.
        self.records = {(c.turn, c.lane): c.records for c in claims}
        eras: list[dict[tuple[int, int], int]] = [{} for _ in range(max((c.era for c in claims), default=0) + 1)]
        for claim in claims:
            eras[claim.era][claim.batch, claim.lane] = claim.turn
        #: The first turn of each era.
        self.begins = [min(turns.values(), default=0) for turns in eras]
        #: Per era in whose place a record lies: (batch, lane) -> turn.
        self.turns = [
            dict(item for turns in (*reversed(eras[here + 1 :]), *eras[: here + 1]) for item in turns.items())
            for here in range(len(eras))
        ]

    def meant(self, name: Name, here: int | None) -> int | None:
        """The turn of the batch that a name means; None: there is no such lane."""
        return self.turns[self.era(here)].get((name[0], name[1]))

    def era(self, turn: int | None) -> int:
        """The era in whose place something lies."""
        return 0 if turn is None else max(0, bisect_right(self.begins, turn) - 1)


@dataclass(frozen=True)
class Example:
    """One record that is not as it should be."""

    kind: str
    partition: int
    offset: int
    #: The turn of the batch in whose place it lies; None: before the first one.
    here: int | None = None
    #: What its audit header says; None: it has none that can be read.
    name: Name | None = None
    #: The turn of the batch that is meant; None: no such lane is known.
    turn: int | None = None


@dataclass(frozen=True)
class LaneSeen:
    """A lane of a batch of which not every place was seen."""

    turn: int
    lane: int
    seen: int
    #: The first of the missing places.
    missing: tuple[int, ...] = ()


@dataclass
class AuditFacts:
    """What the audit headers tell, record by record."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    examples: list[Example] = field(default_factory=list)
    #: Only those lanes that are not complete.
    incomplete: list[LaneSeen] = field(default_factory=list)

    def note(self, example: Example) -> None:
        self.counts[example.kind] += 1
        if self.counts[example.kind] <= LISTED:
            self.examples.append(example)


@dataclass
class Scan:
    """What was found in one topic: sums by the batches' turns (None: before the first batch)."""

    batches: dict[int | None, Sums] = field(default_factory=dict)
    records: int = 0
    seconds: float = 0.0
    topic: str = ""
    audit: AuditFacts | None = None
    #: Records that a reader with read_uncommitted sees, if that was asked.
    uncommitted: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON has no null among an object's names, so the sums are a list."""
        document = asdict(self)
        document["batches"] = [[turn, s.records, s.checksum, s.placed] for turn, s in self.batches.items()]
        return document


def scans_to_json(scans: Sequence[Scan]) -> str:
    return json.dumps({"format": FORMAT, "scans": [s.as_dict() for s in scans]})


def scans_from_json(text: str) -> list[Scan]:
    """The scans of a job's result file."""
    try:
        document = json.loads(text)
        if document["format"] != FORMAT:
            raise FactsFormatError(
                f"The result of the scan has format {document['format']!r}; this version reads format {FORMAT}."
            )
        return [_scan(found) for found in document["scans"]]
    except (ValueError, KeyError, TypeError) as e:
        raise FactsFormatError(f"Not the result of a scan: {text[:200]!r}") from e


def _scan(document: Mapping[str, Any]) -> Scan:
    batches = {turn: Sums(*sums) for turn, *sums in document["batches"]}
    audit = document["audit"]
    return Scan(**{**document, "batches": batches, "audit": None if audit is None else _audit(audit)})


def _audit(document: Mapping[str, Any]) -> AuditFacts:
    examples = [Example(**{**e, "name": tuple(e["name"]) if e["name"] else None}) for e in document["examples"]]
    lanes = [LaneSeen(**{**lane, "missing": tuple(lane["missing"])}) for lane in document["incomplete"]]
    return AuditFacts(dict(document["counts"]), examples, lanes)


def parse_name(header: bytes) -> Name | None:
    """What an audit header says; None when it is not one of ours."""
    found = NAME.fullmatch(header)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
