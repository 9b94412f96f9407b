"""Repairs that only a person may order: the ledger anchored at a checkpoint anew, or thrown away.

Both are answers to a refusal. They change the ledger alone; the sink's records stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ckpt_stream.decision import Intent
from ckpt_stream.errors import LedgerAhead, Refused
from ckpt_stream.files import ReadableFiles, WritableFiles
from ckpt_stream.lease import refuse_if_alive
from ckpt_stream.ledger import ANCHOR, LedgerRecord, ledger_topic
from ckpt_stream.ledger_reader import undecided
from ckpt_stream.replays import note_replay
from ckpt_stream.run_record import ACCEPTED, FORMAT, LIVE, RUNS, RunRecord, now, path_of, run_names
from ckpt_stream.start_of_run import checkpoint_end, committed_end, fence_lanes, read_ledger_ends, write_anchors
from ckpt_stream.topics import Topics

REDO, DONE = "redo", "done"
TIMEOUT_MS = 60_000


class BatchInDoubt(Refused):
    """A batch is in doubt, and without a ledger only a person can say whether it is in the sink."""


@dataclass(frozen=True)
class Rebuilt:
    topic: str
    batch: int
    lanes: int


@dataclass(frozen=True)
class AcceptedReplay:
    batch: int
    lanes_there: tuple[int, ...]
    lanes_missing: tuple[int, ...]


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
    here = checkpoint_end(files)
    name = ledger_topic(sink_id)
    if here.newest is None:
        raise Refused(
            "The checkpoint holds no batch yet.",
            "There is nothing to anchor a ledger at.",
            f"start the stream; if it is refused because of an old ledger, `airflow-ckpt ledger reset {sink_id}`.",
        )
    at = here.committed
    if here.in_doubt is not None:
        if in_doubt not in (REDO, DONE):
            raise BatchInDoubt(
                f"Batch {here.in_doubt} is in doubt: it was planned, and nothing tells whether it is in the sink.",
                "If it is there, doing it again doubles its records; if it is not, counting it as done loses them.",
                f"look at the newest records of {sink} and decide: `airflow-ckpt ledger rebuild {sink_id} --in-doubt redo` "
                "writes it (again), `--in-doubt done` counts it as written.",
            )
        at = here.in_doubt if in_doubt == DONE else here.committed
    topic = topics.get(sink, "sink")
    intent = Intent(sink_id, here.query_id or "", lanes, 0, "", sink, topic.id)
    before = topics.find(name)
    fence_lanes(kafka, intent, max(lanes, before.partitions if before else 0), TIMEOUT_MS)
    if before is not None and not topics.settle(name):
        raise undecided(name, f"A transaction in {name} has not ended although all lanes are fenced.")
    ledger = read_ledger_ends(kafka, name, before.partitions if before else 0)
    known = [r for r in ledger if r is not None]
    _refuse_if_ahead(known, here.newest, here.query_id)
    _refuse_if_known(known, here.in_doubt, replace(intent, query_id=here.query_id or ""))
    topics.ensure_ledger(name, lanes, topic)
    if at is None:  # batch 0 is to be done again: an empty ledger says just that
        if known:
            raise BatchInDoubt(
                f"Batch 0 is to be written again, but {name} holds records of batch {known[0].batch}.",
                "The stream would be refused, because its ledger speaks of another history.",
                f"throw the ledger away first with `airflow-ckpt ledger reset {sink_id}`.",
            )
        return Rebuilt(name, -1, lanes)
    anchored = replace(intent, batch=at, digest=here.digests[at])
    # Lanes that the stream no longer has are anchored too, and lane 0 last: see `Anchors`.
    lasts = {lane: ledger[lane] if lane < len(ledger) else None for lane in reversed(range(max(lanes, len(ledger))))}
    write_anchors(
        kafka, anchored, committed_end(files, at), lasts, run_id="rebuild", application="", timeout_ms=TIMEOUT_MS
    )
    return Rebuilt(name, at, lanes)


def _refuse_if_running(files: ReadableFiles) -> None:
    names = run_names(files.names(RUNS))

    def runs() -> list[RunRecord]:
        texts = [files.read(path_of(name)) for name in names]
        return [r for r in (RunRecord.from_json(t) for t in texts if t) if r.state in LIVE]

    # No run is younger than this name.
    refuse_if_alive(RunRecord(run="~", stream=""), runs)


def _refuse_if_known(known: list[LedgerRecord], in_doubt: int | None, intent: Intent) -> None:
    for record in known:
        # An anchor at this batch is what an interrupted rebuild has left: it says what a user said, and nothing of the sink.
        if record.kind == ANCHOR:
            continue
        if (record.batch, record.query_id, record.topic_id) == (in_doubt, intent.query_id, intent.topic_id):
            raise BatchInDoubt(
                f"The ledger itself says that lane {record.lane} of batch {in_doubt} is in the sink.",
                "Anchoring the ledger elsewhere would write it twice, or lose what other lanes have still to write.",
                "start the stream: it skips what is there and writes the rest.",
            )


def _refuse_if_ahead(known: list[LedgerRecord], newest: int, query_id: str | None) -> None:
    for record in known:
        if record.query_id == query_id and record.batch > newest:
            raise LedgerAhead(
                f"The ledger holds batch {record.batch} of this very query, the checkpoint ends at {newest}.",
                f"Anchoring the ledger at the older checkpoint would write the batches up to {record.batch} twice.",
                'put the newest checkpoint back; for a stateless stream, start on an empty folder with `start="ledger"`.',
            )


def accept_replay(files: WritableFiles, kafka: Mapping[str, Any], sink_id: str, *, by: str) -> AcceptedReplay:
    """Let the stream finish the batch in doubt although its replay differs from the lanes that are in the sink."""
    _refuse_if_running(files)
    here = checkpoint_end(files)
    name = ledger_topic(sink_id)
    found = Topics(kafka).get(name, "ledger")
    ends = read_ledger_ends(kafka, name, found.partitions)
    there = [r for r in ends if r is not None and (r.query_id, r.batch) == (here.query_id, here.in_doubt)]
    if here.in_doubt is None or not there:
        raise Refused(
            f"{name} holds no lane of a batch that the checkpoint has in doubt.",
            "There is no replay to accept.",
            "start the stream: it goes on by itself, or says what is wrong.",
        )
    missing = tuple(lane for lane in range(there[0].lanes) if lane not in {r.lane for r in there})
    document = {"format": FORMAT, "query_id": here.query_id, "batch": here.in_doubt, "by": by, "time": now()}
    # The note comes first: whatever happens to the next run, the verdict on the batch says what a user has accepted.
    note_replay(files, here.query_id or "", here.in_doubt, [r.lane for r in there], run="accept-replay", accepted=True)
    files.write(ACCEPTED, json.dumps(document))
    return AcceptedReplay(here.in_doubt, tuple(r.lane for r in there), missing)


def reset(kafka: Mapping[str, Any], sink_id: str) -> str:
    """Delete the ledger: the next start on an empty checkpoint begins anew, and may write again what is in the sink."""
    topics = Topics(kafka)
    name = ledger_topic(sink_id)
    topics.get(name, "ledger")
    topics.delete(name)
    return name
