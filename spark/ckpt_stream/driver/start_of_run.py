"""The start of a run: compare ledger and checkpoint, fence every lane, compare again; then continue or refuse."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ckpt_stream.driver.unfinished_batch import UnfinishedBatch, find_unfinished_batch
from ckpt_stream.errors import LedgerLost
from ckpt_stream.kafka.lane_control import fence_lanes, write_anchors
from ckpt_stream.kafka.ledger_comparison import read_ledger_and_checkpoint
from ckpt_stream.kafka.ledger_creation import ensure_ledger
from ckpt_stream.kafka.ledger_reader import ledger_undecided
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.checkpoint.batch_offsets import end_offsets, start_offsets
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.batch_to_write import FIRST_BATCH, BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.adoption import Adoption, note_adoption, remove_adoption
from ckpt_stream.protocol.run_files.replays import accepted_batch
from ckpt_stream.spark.hadoop_files import CheckpointFiles


@dataclass(frozen=True)
class Start:
    """The result of the start of a run."""

    reconciliation: Reconciliation
    checkpoint: IntactCheckpoint
    #: The end offsets of the newest committed batch; for a new checkpoint, the end offsets of the adopted ledger.
    end: Offsets
    adopted: Adoption | None = None
    unfinished: UnfinishedBatch | None = None


def reconcile_at_start(
    files: CheckpointFiles,
    topics: Topics,
    kafka: Mapping[str, Any],
    sink: SinkIdentity,
    *,
    run_id: str,
    application: str,
    timeout_ms: int,
    adopt_ledger: bool,
) -> Start:
    """Compare ledger and checkpoint and bring the ledger up to date, or raise a refusal. Writes nothing to the sink topic."""
    seen = read_ledger_and_checkpoint(files, topics, kafka, sink, adopt_ledger=adopt_ledger)
    if not seen.conclusive:
        raise ledger_undecided(
            seen.topic, f"The checkpoint changes while {seen.topic} is read: another driver is alive."
        )
    # The comparison comes before the fence, because a stream that is refused must not disturb the stream that owns this ledger.
    # The fence comes first only if ledger records are missing: they may be in a transaction that is open or lacks its marker.
    with suppress(LedgerLost):
        seen.reconcile(sink, adopt_ledger=adopt_ledger)
    fence_lanes(kafka, sink, max(sink.lanes, seen.partitions), timeout_ms)
    seen = seen.read_again(files, topics, kafka, wait_until_readable=True)
    if not seen.conclusive:
        raise ledger_undecided(
            seen.topic,
            f"The checkpoint changes while {seen.topic} is read, or a transaction in the ledger has not ended.",
        )
    verdict = seen.reconcile(sink, adopt_ledger=adopt_ledger)
    ensure_ledger(topics, seen.topic, sink.lanes, seen.sink)
    adopted, committed = seen.adopted, seen.checkpoint.committed
    end = (end_offsets(files, committed) if committed is not None else None) or {}
    if verdict.adopt is not None:
        adopted = verdict.adopt
        note_adoption(files, adopted)
        end = next(r.end for r in seen.ledger if r is not None and r.batch == adopted.batch)
    elif seen.checkpoint.newest is None:
        remove_adoption(files)  # it belongs to a query from before the ledger was reset
    if verdict.anchors is not None:
        at = verdict.anchors.at
        write_anchors(
            kafka,
            BatchToWrite(sink, at.query_id, at.batch, at.digest),
            start_offsets(files, FIRST_BATCH) if at.batch < FIRST_BATCH else at.end,
            {lane: seen.last(lane) for lane in verdict.anchors.lanes},
            run_id=run_id,
            application=application,
            timeout_ms=timeout_ms,
        )
    unfinished = find_unfinished_batch(seen.checkpoint, seen.ledger[: sink.lanes], accepted_batch(files))
    return Start(verdict, seen.checkpoint, end, adopted, unfinished)
