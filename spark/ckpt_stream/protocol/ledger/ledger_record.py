"""The ledger record: it describes one committed batch of one lane.

The ledger is a compacted topic with one partition per lane. A ledger record is written in the same transaction as the batch's
records, so either all of them are committed or none. The format is defined in this module only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ckpt_stream.errors import LedgerFormatError
from ckpt_stream.protocol.offsets import Offsets

#: Format 2 has another checksum (see `checksum.py`), and the record of lane 0 has the batch's entry of the offset log. All lanes
#: of a batch have the same format, so that their sums can be added up.
FORMAT = 2
FORMATS = (1, FORMAT)

BATCH = "batch"
#: A record that repeats the position of a batch and stands for no records of the sink. It is written when the number of lanes
#: changes, and by ``airflow-ckpt ledger rebuild``.
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
    #: Number and checksum of the records that went to the dead-letter topic, in the same transaction.
    dead_letter_topic: str | None = None
    dead_letters: int = 0
    dead_letter_checksum: int = 0
    #: The checksum weighted by partition, if the transform chose the partition of every record; since format 2.
    placed: int | None = None
    #: The text of ``offsets/<batch>``, in lane 0: with it the batch can be planned again; since format 2.
    offsets: str | None = None
    #: In the first batch of a query that adopted the ledger: ``query_id`` and ``batch`` of the adopted end; since format 2.
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
            # A later version may add fields to a format, but does not change the meaning of the fields known here.
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
    """Unique among all writers of a Kafka cluster; a new producer with this id fences the lane's former writers."""
    return f"{sink_id}-{lane}"


def sink_start(lanes: Iterable[LedgerRecord], topic: str) -> dict[int, int]:
    """Where a topic's partitions ended when a batch began, from its lanes' records; of several attempts the earliest counts."""
    starts: dict[int, int] = {}
    for record in lanes:
        for partition, offset in record.sink_start.get(topic, {}).items():
            number = int(partition)
            starts[number] = min(starts.get(number, offset), offset)
    return starts


def sink_starts(records: Iterable[LedgerRecord], topic: str) -> dict[int, dict[int, int]]:
    """By batch number, where a topic's partitions ended when each batch of one query began.

    The newest batch may lack lanes that are not written yet. If the oldest batch lacks lanes, they are forgotten: the batch is
    left out, because its start may have been in a forgotten lane.
    """
    batches: dict[int, list[LedgerRecord]] = {}
    for record in records:
        if record.kind != ANCHOR:
            batches.setdefault(record.batch, []).append(record)
    oldest = min(batches, default=0)
    if len(batches) > 1 and len({record.lane for record in batches[oldest]}) < batches[oldest][0].lanes:
        del batches[oldest]
    return {number: sink_start(lanes, topic) for number, lanes in batches.items()}
