"""The ledger's record: what one committed batch of one lane says about itself.

The ledger is a compacted topic with one partition per lane. A record is written inside the very transaction that
carries the batch's records, so it is there if and only if they are. This module is the format's one definition.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ckpt_stream.errors import StreamError

FORMAT = 1
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
    format: int = field(default=FORMAT)

    @property
    def key(self) -> bytes:
        """An anchor has a key of its own, so that compaction never lets it replace the batch it repeats."""
        return record_key(self.lane, self.batch, self.kind)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> LedgerRecord:
        try:
            document = json.loads(value)
            version = document["format"]
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise LedgerFormatError(
                f"Not a ledger record: {value[:200]!r}. Something else writes to the ledger topic, which is for "
                "airflow-ckpt alone: stop it, or give the stream a sink_id of its own."
            ) from e
        if version != FORMAT:
            raise LedgerFormatError(
                f"Ledger record of format {version!r}; this version reads format {FORMAT}. Install a newer airflow-ckpt."
            )
        try:
            return cls(**document)
        except TypeError as e:
            raise LedgerFormatError(f"Ledger record with unknown or missing fields: {value[:400]!r}") from e


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
