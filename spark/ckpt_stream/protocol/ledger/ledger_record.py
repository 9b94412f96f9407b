"""The ledger's record: what one committed batch of one lane says about itself.

The ledger is a compacted topic with one partition per lane. A record is written inside the very transaction that
carries the batch's records, so it is there if and only if they are. This module is the format's one definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ckpt_stream.errors import LedgerFormatError
from ckpt_stream.protocol.offsets import Offsets

#: Format 2 has another checksum (see `checksum.py`), and lane 0 carries the batch's entry of the offset log. A batch
#: is of one format in all its lanes, so that their sums can be added up.
FORMAT = 2
FORMATS = (1, FORMAT)

BATCH = "batch"
#: Repeats a position without claiming records: written when lanes change and by ``airflow-ckpt ledger rebuild``.
ANCHOR = "anchor"


@dataclass(frozen=True)
class LedgerRecord:
    """One batch of one lane, as committed."""

    sink_id: str
    query_id: str
    run_id: str
    lane: int
    lanes: int
    batch: int
    digest: str
    start: Offsets
    end: Offsets
    records: int
    checksum: int
    topic: str
    topic_id: str
    application: str
    time: str
    kind: str = BATCH
    #: Where the sink and the dead-letter topic ended when the batch began: the batch's records come after these offsets.
    sink_start: Offsets = field(default_factory=dict)
    #: Each record carries the audit header.
    audited: bool = False
    #: Records and checksum of what went to the dead-letter topic, in the same transaction.
    dead_letter_topic: str | None = None
    dead_letters: int = 0
    dead_letter_checksum: int = 0
    #: The checksum of the records with their partitions, where the transform chose all of them; since format 2.
    placed: int | None = None
    #: The text of ``offsets/<batch>``, in lane 0: with it the batch can be planned again; since format 2.
    offsets: str | None = None
    #: In the first batch of a query that took the ledger over: ``query_id`` and ``batch`` of what it follows; since format 2.
    adopted: Mapping[str, Any] | None = None
    #: The run that first produced the rows of this lane; a later run that writes the same rows keeps its name. Since format 2.
    attempt: str = ""
    format: int = field(default=FORMAT)

    @property
    def key(self) -> bytes:
        """An anchor's key is not that of a batch, so compaction never lets it replace the batch it repeats."""
        return record_key(self.lane, self.batch, self.kind)

    def to_json(self) -> bytes:
        document = {name: value for name, value in asdict(self).items() if self.format > 1 or name not in _SINCE_2}
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> LedgerRecord:
        try:
            document = json.loads(value)
            version = document["format"]
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise LedgerFormatError(
                f"Not a ledger record: {value[:200]!r}. Another program writes to the ledger topic, which is for "
                "airflow-ckpt alone: stop it, or give the stream another sink_id."
            ) from e
        if version not in FORMATS:
            raise LedgerFormatError(
                f"Ledger record of format {version!r}; this version reads the formats {', '.join(map(str, FORMATS))}. Install "
                "a newer airflow-ckpt."
            )
        try:
            # What a later version adds within a format changes nothing of what this one knows.
            return cls(**{name: found for name, found in document.items() if name in _FIELDS})
        except TypeError as e:
            raise LedgerFormatError(
                f"Ledger record with missing fields: {value[:400]!r}. Another program writes to the ledger topic, which is "
                "for airflow-ckpt alone: stop it, or give the stream another sink_id."
            ) from e


_FIELDS = frozenset(f.name for f in fields(LedgerRecord))
_SINCE_2 = ("placed", "offsets", "adopted", "attempt")


def record_key(lane: int, batch: int, kind: str = BATCH) -> bytes:
    return (f"{lane}/{batch}" if kind == BATCH else f"{lane}/{batch}/{kind}").encode()


def ledger_topic(sink_id: str) -> str:
    return f"{sink_id}.ledger"


def transactional_id(sink_id: str, lane: int) -> str:
    """Unique among all the writers of a Kafka cluster: it is what fences a lane's former owner."""
    return f"{sink_id}-{lane}"


def sink_start(lanes: Iterable[LedgerRecord], topic: str) -> dict[int, int]:
    """Where a topic's partitions ended when a batch began, by its lanes' records; the earliest of its attempts counts."""
    starts: dict[int, int] = {}
    for record in lanes:
        for partition, offset in record.sink_start.get(topic, {}).items():
            number = int(partition)
            starts[number] = min(starts.get(number, offset), offset)
    return starts


def sink_starts(records: Iterable[LedgerRecord], topic: str) -> dict[int, dict[int, int]]:
    """By number, where a topic's partitions ended when each batch of one query began.

    The newest batch may lack lanes that are still to come. An oldest one that lacks lanes is being forgotten: its start was
    perhaps in a lane that is gone, so it is left out.
    """
    batches: dict[int, list[LedgerRecord]] = {}
    for record in records:
        if record.kind != ANCHOR:
            batches.setdefault(record.batch, []).append(record)
    oldest = min(batches, default=0)
    if len(batches) > 1 and len({record.lane for record in batches[oldest]}) < batches[oldest][0].lanes:
        del batches[oldest]
    return {number: sink_start(lanes, topic) for number, lanes in batches.items()}
