"""The result of a scan of the sink, in one format for the scan in one process and for the Spark job.

The verification compares it with the ledger; a scan draws no conclusion. A scan identifies a batch by its index in the range (0
is the first), because a batch number may occur twice: a query that adopted the ledger counts from 0 again.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ckpt_stream.errors import ScanResultFormatError
from ckpt_stream.protocol.ledger.checksum import add, weighted_checksum
from ckpt_stream.protocol.ledger.ledger_record import FORMAT as LEDGER_FORMAT

SCAN_FORMAT = 2

ALIEN, DUPLICATE, OUT_OF_ORDER = "alien", "duplicate", "out_of_order"
FAULT_KINDS = (ALIEN, DUPLICATE, OUT_OF_ORDER)
#: So many records of one kind are listed one by one; further records are only counted.
LISTED = 20
#: So many missing places of a lane are named; further places are only counted.
NAMED = 5

#: batch, lane and place in the lane: what the audit header names.
Name = tuple[int, int, int]
#: Fewer digits than a 64-bit number has, so that Spark reads the same names as Python.
NAME = re.compile(rb"(\d{1,18})/(\d{1,18})/(\d{1,18})")


@dataclass
class Sums:
    """The number of records, the sum of their hashes, and the sum of their hashes weighted by partition."""

    records: int = 0
    checksum: int = 0
    placed: int = 0

    def add(self, records: int, checksum: int, partition: int) -> None:
        """Add records of one partition."""
        self.records += records
        self.checksum = add(self.checksum, checksum)
        self.placed = add(self.placed, checksum * _weight(partition))


@cache
def _weight(partition: int) -> int:
    return weighted_checksum(1, partition)


@dataclass(frozen=True)
class Boundaries:
    """Per partition, the offsets at which each batch of the range begins."""

    offsets: Mapping[int, Sequence[int]]
    #: The ledger format of each batch, which decides how its records are hashed; if empty, all have the newest format.
    formats: Sequence[int] = ()

    def batch_at(self, partition: int, offset: int) -> tuple[int | None, int]:
        """The index of the batch that an offset belongs to (None: before the first), and where the next one begins."""
        begins = self.offsets.get(partition, ())
        index = bisect_right(begins, offset)
        following = begins[index] if index < len(begins) else 1 << 62
        return (index - 1 if index else None), following

    def format_of(self, index: int | None) -> int:
        return self.formats[index or 0] if self.formats else LEDGER_FORMAT


@dataclass(frozen=True)
class ExpectedLane:
    """A lane of a batch, as the ledger has it."""

    #: The index of its batch in the range.
    index: int
    #: The index of its query in the range: 0 is the first, and each query that adopted the ledger has the next number.
    query_index: int
    batch: int
    lane: int
    records: int


class ExpectedLanes:
    """Finds the lane to which the name in an audit header refers.

    Several queries use the same names. A name refers to a lane of the query in whose range the record lies or, if that query has
    no such lane, of the query before it.
    """

    def __init__(self, lanes: Sequence[ExpectedLane]) -> None:
        self.all = lanes
        #: (index of the batch, lane) -> number of records according to the ledger.
        self.records = {(lane.index, lane.lane): lane.records for lane in lanes}
        queries: list[dict[tuple[int, int], int]] = [
            {} for _ in range(max((e.query_index for e in lanes), default=0) + 1)
        ]
        for lane in lanes:
            queries[lane.query_index][lane.batch, lane.lane] = lane.index
        #: The index of each query's first batch.
        self.begins = [min(indexes.values(), default=0) for indexes in queries]
        #: Per query in whose range a record lies: (batch, lane) -> index of the batch to which the name refers.
        self.meanings = [
            dict(item for indexes in (*reversed(queries[own + 1 :]), *queries[: own + 1]) for item in indexes.items())
            for own in range(len(queries))
        ]

    def batch_meant(self, name: Name, lies_in: int | None) -> int | None:
        """The index of the batch to which a name refers; None: there is no such lane."""
        return self.meanings[self.query_of(lies_in)].get((name[0], name[1]))

    def query_of(self, index: int | None) -> int:
        """The query in whose range a batch lies."""
        return 0 if index is None else max(0, bisect_right(self.begins, index) - 1)


@dataclass(frozen=True)
class Example:
    """One faulty record."""

    kind: str
    partition: int
    offset: int
    #: The index of the batch in whose range it lies; None: before the first one.
    lies_in: int | None = None
    #: The name in its audit header; None: it has no header that can be read.
    name: Name | None = None
    #: The index of the batch to which the name refers; None: there is no such lane.
    means: int | None = None


@dataclass(frozen=True)
class IncompleteLane:
    """A lane of a batch in which places are missing."""

    #: The index of its batch.
    index: int
    lane: int
    seen: int
    #: The first of the missing places.
    missing: tuple[int, ...] = ()


@dataclass
class AuditResult:
    """The result of the audit, from the header of each record."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULT_KINDS, 0))
    examples: list[Example] = field(default_factory=list)
    incomplete: list[IncompleteLane] = field(default_factory=list)

    def add(self, example: Example) -> None:
        """Count a record, and list it if it is among the first of its kind."""
        self.counts[example.kind] += 1
        if self.counts[example.kind] <= LISTED:
            self.examples.append(example)


@dataclass
class Scan:
    """The result for one topic: sums by the index of the batch (None: before the first batch)."""

    batches: dict[int | None, Sums] = field(default_factory=dict)
    records: int = 0
    seconds: float = 0.0
    topic: str = ""
    audit: AuditResult | None = None
    #: The number of records that a reader with read_uncommitted sees, if that was asked for.
    uncommitted: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """As a JSON document. The sums are a list, because a JSON object cannot have null as a name."""
        sums = [[index, s.records, s.checksum, s.placed] for index, s in self.batches.items()]
        return {**vars(self), "batches": sums, "audit": None if self.audit is None else _audit_as_dict(self.audit)}


def scans_to_json(scans: Sequence[Scan]) -> str:
    return json.dumps({"format": SCAN_FORMAT, "scans": [s.as_dict() for s in scans]})


def scans_from_json(text: str) -> list[Scan]:
    """Parse the scans in the result file of a job."""
    try:
        document = json.loads(text)
        if document["format"] != SCAN_FORMAT:
            raise ScanResultFormatError(
                f"The result of the scan has format {document['format']!r}; this version reads format {SCAN_FORMAT}."
            )
        return [_scan(found) for found in document["scans"]]
    except (ValueError, KeyError, TypeError) as e:
        raise ScanResultFormatError(f"Not the result of a scan: {text[:200]!r}") from e


def _scan(document: Mapping[str, Any]) -> Scan:
    batches = {index: Sums(*sums) for index, *sums in document["batches"]}
    audit = document["audit"]
    return Scan(**{**document, "batches": batches, "audit": None if audit is None else _audit(audit)})


def _audit_as_dict(result: AuditResult) -> dict[str, Any]:
    """With the field names of the file format: `here` for `lies_in`, `turn` for the index of a batch."""
    examples = [
        {
            "kind": e.kind,
            "partition": e.partition,
            "offset": e.offset,
            "here": e.lies_in,
            "name": e.name,
            "turn": e.means,
        }
        for e in result.examples
    ]
    incomplete = [
        {"turn": lane.index, "lane": lane.lane, "seen": lane.seen, "missing": lane.missing}
        for lane in result.incomplete
    ]
    return {"counts": result.counts, "examples": examples, "incomplete": incomplete}


def _audit(document: Mapping[str, Any]) -> AuditResult:
    examples = [
        Example(e["kind"], e["partition"], e["offset"], e["here"], tuple(e["name"]) if e["name"] else None, e["turn"])
        for e in document["examples"]
    ]
    lanes = [IncompleteLane(e["turn"], e["lane"], e["seen"], tuple(e["missing"])) for e in document["incomplete"]]
    return AuditResult(dict(document["counts"]), examples, lanes)


def parse_name(header: bytes) -> Name | None:
    """Parse an audit header; None if it is not one of airflow-ckpt."""
    found = NAME.fullmatch(header)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
