"""Repairs after a refusal, at a user's command: rebuild the ledger from a checkpoint, accept a replay that differs, reset.

They change the ledger and the files beside the checkpoint, but no records of the sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.errors import BatchInDoubt, LedgerAhead, NothingToRepair
from ckpt_stream.kafka.lane_control import fence_lanes, read_ledger_ends, write_anchors
from ckpt_stream.kafka.ledger_creation import ensure_ledger
from ckpt_stream.kafka.ledger_reader import ledger_undecided
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.machine.lease import refuse_if_alive
from ckpt_stream.protocol.checkpoint.batch_offsets import end_offsets
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint, read_intact_checkpoint
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, ledger_topic
from ckpt_stream.protocol.run_files.record_files import RUNS
from ckpt_stream.protocol.run_files.replays import note_accepted, note_replay
from ckpt_stream.protocol.run_files.run_record import NOT_ENDED, RunRecord, path_of, runs_in
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles

REDO, DONE = "redo", "done"
TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class Rebuilt:
    """The ledger that was made again, and the batch that it ends with."""

    topic: str
    batch: int
    lanes: int


def rebuild(
    files: ReadableFiles,
    kafka: Mapping[str, Any],
    *,
    sink_id: str,
    sink: str,
    lanes: int,
    in_doubt: str | None = None,
) -> Rebuilt:
    """Anchor the ledger at the checkpoint's newest committed batch (or, with ``done``, at the batch in doubt)."""
    _refuse_if_running(files)
    topics = Topics(kafka)
    checkpoint = read_intact_checkpoint(files)
    newest, at = _batch_to_anchor(checkpoint, sink_id, sink, in_doubt)
    topic = topics.get(sink, "sink")
    identity = SinkIdentity(sink_id, lanes, sink, topic.id)
    name = ledger_topic(sink_id)
    before = topics.find(name, expected=True)
    fence_lanes(kafka, identity, max(lanes, before.partitions if before else 0), TIMEOUT_MS)
    if before is not None and not topics.wait_until_readable(name):
        raise ledger_undecided(name, f"A transaction in {name} is still open although all lanes are fenced.")
    ledger = read_ledger_ends(kafka, name, before.partitions if before else 0)
    known = [r for r in ledger if r is not None]
    _refuse_if_ahead(known, newest, checkpoint.query_id)
    _refuse_if_in_sink(known, checkpoint, topic.id)
    ensure_ledger(topics, name, lanes, topic)
    if at is None:  # an empty ledger means that batch 0 is to be written
        if known:
            raise BatchInDoubt(
                f"Batch 0 is to be written again, but {name} holds records of batch {known[0].batch}.",
                "A start would take them for a batch that was written already, and refuse.",
                f"delete the ledger first with `airflow-ckpt ledger reset {sink_id}`.",
            )
        return Rebuilt(name, -1, lanes)
    # Lanes that the stream no longer has are anchored too, and lane 0 last: see `AnchorsToWrite`.
    last_seen = {n: ledger[n] if n < len(ledger) else None for n in reversed(range(max(lanes, len(ledger))))}
    write_anchors(
        kafka,
        BatchToWrite(identity, checkpoint.query_id or "", at, checkpoint.digests[at]),
        end_offsets(files, at) or {},
        last_seen,
        run_id="rebuild",
        application="",
        timeout_ms=TIMEOUT_MS,
    )
    return Rebuilt(name, at, lanes)


def _batch_to_anchor(
    checkpoint: IntactCheckpoint, sink_id: str, sink: str, in_doubt: str | None
) -> tuple[int, int | None]:
    """The checkpoint's newest batch, and the batch to anchor the ledger at; None if batch 0 is to be written again."""
    if checkpoint.newest is None:
        raise NothingToRepair(
            "The checkpoint holds no batch yet.",
            "There is nothing to anchor a ledger at.",
            f"start the stream; if it is refused because of an old ledger, `airflow-ckpt ledger reset {sink_id}`.",
        )
    if checkpoint.in_doubt is None:
        return checkpoint.newest, checkpoint.committed
    if in_doubt not in (REDO, DONE):
        raise BatchInDoubt(
            f"Batch {checkpoint.in_doubt} is in doubt: it was planned, and it is unknown whether it is in the sink.",
            "If it is there, writing it again doubles its records; if it is not, counting it as written loses them.",
            f"look at the newest records of {sink} and decide: `airflow-ckpt ledger rebuild {sink_id} --in-doubt redo` "
            "writes it (again), `--in-doubt done` counts it as written.",
        )
    return checkpoint.newest, checkpoint.in_doubt if in_doubt == DONE else checkpoint.committed


def _refuse_if_running(files: ReadableFiles) -> None:
    names = runs_in(files.names(RUNS))

    def runs() -> list[RunRecord]:
        texts = [files.read(path_of(name)) for name in names]
        return [r for r in (RunRecord.from_json(t) for t in texts if t) if r.state in NOT_ENDED]

    # This name sorts after the name of every run.
    refuse_if_alive(RunRecord(run="~", stream=""), runs)


def _refuse_if_in_sink(known: list[LedgerRecord], checkpoint: IntactCheckpoint, topic_id: str) -> None:
    for record in known:
        # An interrupted rebuild leaves an anchor at this batch. It repeats a user's statement and proves nothing about the sink.
        if record.kind == ANCHOR:
            continue
        if (record.batch, record.query_id, record.topic_id) == (checkpoint.in_doubt, checkpoint.query_id, topic_id):
            raise BatchInDoubt(
                f"The ledger shows that lane {record.lane} of batch {record.batch} is in the sink.",
                "To anchor the ledger would write that lane twice (redo), or lose the records of the other lanes (done).",
                "start the stream: it skips the lanes that are in the sink and writes the others.",
            )


def _refuse_if_ahead(known: list[LedgerRecord], newest: int, query_id: str | None) -> None:
    for record in known:
        if record.query_id == query_id and record.batch > newest:
            raise LedgerAhead(
                f"The ledger holds batch {record.batch} of this query, but the checkpoint ends at {newest}.",
                f"Anchoring the ledger at the older checkpoint would write the batches up to {record.batch} twice.",
                'put the newest checkpoint back; for a stateless stream, start on an empty folder with `start="ledger"`.',
            )


@dataclass(frozen=True)
class AcceptedReplay:
    """The batch whose replay is accepted, and which of its lanes are in the sink already."""

    batch: int
    lanes_there: tuple[int, ...]
    lanes_missing: tuple[int, ...]


def accept_differing_replay(files: WritableFiles, kafka: Mapping[str, Any], sink_id: str, *, by: str) -> AcceptedReplay:
    """Let the stream finish the batch in doubt although its replay differs from the lanes that are in the sink."""
    _refuse_if_running(files)
    checkpoint = read_intact_checkpoint(files)
    batch = checkpoint.in_doubt
    name = ledger_topic(sink_id)
    found = Topics(kafka).get(name, "ledger")
    ends = read_ledger_ends(kafka, name, found.partitions)
    there = [r for r in ends if r is not None and (r.query_id, r.batch) == (checkpoint.query_id, batch)]
    if batch is None or not there:
        raise NothingToRepair(
            f"{name} holds no lane of a batch that the checkpoint has in doubt.",
            "There is no replay to accept.",
            "start the stream: it continues, or its error says what is wrong.",
        )
    lanes = [r.lane for r in there]
    missing = tuple(lane for lane in range(there[0].lanes) if lane not in lanes)
    # The note for the verdict is written first: it must exist even if the next run fails.
    note_replay(files, checkpoint.query_id or "", batch, lanes, run="accept-replay", accepted=True)
    note_accepted(files, checkpoint.query_id, batch, by=by)
    return AcceptedReplay(batch, tuple(lanes), missing)


def reset(kafka: Mapping[str, Any], sink_id: str) -> str:
    """Delete the ledger. The next start needs an empty checkpoint, and may write records that are already in the sink."""
    topics = Topics(kafka)
    name = ledger_topic(sink_id)
    topics.get(name, "ledger")
    topics.delete(name)
    return name
