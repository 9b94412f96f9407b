"""What a scan of the sink has found, as plain facts: the one format of the scan in process and of the Spark job.

The facts accuse nobody. What they mean is decided in one place, by whoever compares them with the ledger.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ckpt_stream.errors import StreamError

FORMAT = 1

ALIEN, DUPLICATE, OUT_OF_ORDER = "alien", "duplicate", "out_of_order"
KINDS = (ALIEN, DUPLICATE, OUT_OF_ORDER)
#: Records of one kind that are listed one by one; the rest is only counted.
LISTED = 20
#: Missing places of a lane that are named; the rest is only counted.
NAMED = 5

#: batch, lane and place: what the audit header names.
Name = tuple[int, int, int]
#: Fewer digits than a 64-bit number has, so that Spark reads the same names as Python.
NAME = re.compile(rb"(\d{1,18})/(\d{1,18})/(\d{1,18})")


class FactsFormatError(StreamError):
    """A file is not the result of a scan, or of another version."""

    restart_may_help = False


@dataclass
class Sums:
    """How many records, and the order-free sum of their hashes."""

    records: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class Boundaries:
    """Per partition, the offsets at which each batch begins, in the order of the batches."""

    numbers: Sequence[int]
    offsets: Mapping[int, Sequence[int]]

    def place(self, partition: int, offset: int) -> tuple[int | None, int]:
        """The batch to which an offset belongs, and where the next one begins."""
        begins = self.offsets.get(partition, ())
        index = bisect_right(begins, offset)
        following = begins[index] if index < len(begins) else 1 << 62
        return (self.numbers[index - 1] if index else None), following


@dataclass(frozen=True)
class Example:
    """One record that is not as it should be."""

    kind: str
    partition: int
    offset: int
    #: The batch in whose place it lies; None: before the first one.
    here: int | None = None
    #: What its audit header says; None: it has none that can be read.
    name: Name | None = None


@dataclass(frozen=True)
class LaneSeen:
    """A lane of a batch of which not every place was seen."""

    batch: int
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
    """What was found in one topic: sums by batch number (None: before the first batch)."""

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
        document["batches"] = [[batch, s.records, s.checksum] for batch, s in self.batches.items()]
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
    batches = {batch: Sums(records, checksum) for batch, records, checksum in document["batches"]}
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
