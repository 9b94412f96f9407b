"""The ledger's record: what one committed batch of one lane says about itself.

The ledger is a compacted topic with one partition per lane. A record is written inside the very transaction that
carries the batch's records, so it is there if and only if they are. This module is the format's one definition.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ckpt_stream.errors import StreamError

#: Format 2 has another checksum (see `ckpt_stream.checksum`), and lane 0 carries the batch's entry of the offset log.
#: A batch is of one format in all its lanes, so that their sums can be added up.
FORMAT = 2
FORMATS = (1, FORMAT)
#: ``{topic: {partition: offset}}``, as in Spark's own offset log.
Offsets = Mapping[str, Mapping[str, int]]

BATCH = "batch"
#: Repeats a position without claiming records: written when lanes change and by ``airflow-ckpt ledger rebuild``.
ANCHOR = "anchor"


class LedgerFormatError(StreamError):
    """A record in a ledger topic is not one of ours, or of a newer version than this one."""

    restart_may_help = False


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
    #: Where the sink and the dead-letter topic ended when the batch began: everything of it lies behind.
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
    #: The run of whose rows the lane is; a later one that wrote the same rows names the earlier; since format 2.
    attempt: str = ""
    format: int = field(default=FORMAT)

    @property
    def key(self) -> bytes:
        """An anchor has a key of its own, so that compaction never lets it replace the batch it repeats."""
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
                "airflow-ckpt alone: stop it, or give the stream a sink_id of its own."
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
                "for airflow-ckpt alone: stop it, or give the stream a sink_id of its own."
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


def digest(offset_log: str) -> str:
    """Identify a batch's input by the text of its entry in Spark's offset log, which a replay never rewrites."""
    return hashlib.sha256(offset_log.encode()).hexdigest()[:32]
