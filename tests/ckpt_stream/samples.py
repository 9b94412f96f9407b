"""Ledger records, batches and checkpoints with everything filled in, so that a test names only what it is about."""

from __future__ import annotations

from typing import Any

from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord

QUERY = "query-1"


def held(batch: int, lane: int = 0, lanes: int = 1, **changes: Any) -> LedgerRecord:
    """What the ledger holds of a batch."""
    values: dict[str, Any] = {
        "sink_id": "orders",
        "query_id": QUERY,
        "run_id": "run-1",
        "lane": lane,
        "lanes": lanes,
        "batch": batch,
        "digest": f"input-{batch}",
        "start": {"source": {"0": batch * 10}},
        "end": {"source": {"0": batch * 10 + 10}},
        "records": 10,
        "checksum": 2**64 - 1,
        "topic": "orders-out",
        "topic_id": "topic-1",
        "application": "1.0",
        "time": "2026-11-01T00:00:00.000+00:00",
    }
    return LedgerRecord(**{**values, **changes})


def sink_of(lanes: int = 1, **changes: Any) -> SinkIdentity:
    values: dict[str, Any] = {"sink_id": "orders", "lanes": lanes, "topic": "orders-out", "topic_id": "topic-1"}
    return SinkIdentity(**{**values, **changes})


def about_to_write(batch: int, lanes: int = 1, *, sink: SinkIdentity | None = None, **changes: Any) -> BatchToWrite:
    """What the stream is about to write."""
    values: dict[str, Any] = {"query_id": QUERY, "batch": batch, "digest": f"input-{batch}"}
    return BatchToWrite(sink or sink_of(lanes), **{**values, **changes})


def checkpoint_at(newest: int | None, committed: int | None, query: str | None = QUERY) -> IntactCheckpoint:
    known = [n for n in {newest, committed} if n is not None]
    return IntactCheckpoint(newest, committed, query, {n: f"input-{n}" for n in known})
