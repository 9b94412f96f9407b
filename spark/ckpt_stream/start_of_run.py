"""The start of a run, on the driver, before the first batch: fence every lane, read the whole ledger, compare it with
the checkpoint, and say in one line how the stream goes on, or refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from ckpt_stream.checkpoint_log import RESTORE, CheckpointLogError, parse_metadata, parse_offsets
from ckpt_stream.decision import Adoption, CheckpointEnd, Intent, Reconciliation, reconcile
from ckpt_stream.errors import LedgerLost
from ckpt_stream.files import CheckpointFiles, ReadableFiles
from ckpt_stream.ledger import ANCHOR, BATCH, LedgerRecord, Offsets, digest, ledger_topic, transactional_id
from ckpt_stream.ledger import FORMAT as LEDGER_FORMAT
from ckpt_stream.ledger_reader import open_reader, read_last
from ckpt_stream.log_ends import LOOKS, log_ends
from ckpt_stream.run_record import ACCEPTED, ADOPTION, FORMAT, accepted_batch, now, parse
from ckpt_stream.sink import LeftBatch
from ckpt_stream.topics import Topics
from ckpt_stream.transaction import Transaction

#: Lanes fenced at once; each is a short-lived client.
FENCES_AT_ONCE = 8


@dataclass(frozen=True)
class Start:
    """How a run begins."""

    reconciliation: Reconciliation
    checkpoint: CheckpointEnd
    #: End offsets of the newest committed batch; of the adopted ledger for a new checkpoint.
    end: Offsets
    adopted: Adoption | None = None
    #: The batch in doubt.
    left: LeftBatch | None = None


def checkpoint_end(files: ReadableFiles) -> CheckpointEnd:
    """Where the checkpoint stands, from its listings and the newest entries; damage is refused by name."""
    for _ in range(LOOKS):
        ends = log_ends(files)
        if ends.damage is not None:
            raise CheckpointLogError(f"{ends.damage.found}: {ends.damage.risk} {RESTORE}")
        texts = {n: files.read(f"offsets/{n}") for n in {ends.newest, ends.committed} if n is not None}
        gone = sorted(n for n, text in texts.items() if text is None)
        if not gone:
            break
        # Lost, or thrown away by a running stream that has moved on since it was listed.
    else:
        raise CheckpointLogError(f"offsets/{gone[0]} was listed and is not there. {RESTORE}")
    metadata = files.read("metadata")
    query_id = parse_metadata(metadata) if metadata else None
    return CheckpointEnd(query_id, ends.newest, ends.committed, {n: digest(text or "") for n, text in texts.items()})


@dataclass(frozen=True)
class Comparison:
    """Ledger and checkpoint as they are found, and the verdict on both."""

    reconciliation: Reconciliation
    checkpoint: CheckpointEnd
    topic: str
    partitions: int
    adopted: Adoption | None


def compare(
    files: ReadableFiles, topics: Topics, kafka: Mapping[str, Any], intent: Intent, *, adopt_ledger: bool
) -> Comparison:
    """Compare ledger and checkpoint without touching either; raises the refusal that a start would meet."""
    checkpoint = checkpoint_end(files)
    name = ledger_topic(intent.sink_id)
    found = topics.find(name)
    if checkpoint.newest is not None and found is None:
        raise LedgerLost(
            f"The ledger topic {name} does not exist, but the checkpoint is at batch {checkpoint.newest}.",
            "Without it nobody can tell whether the newest batch is in the sink already: it might be written twice.",
            f"if the checkpoint is right, `airflow-ckpt ledger rebuild {intent.sink_id}` makes the ledger anew from it.",
        )
    partitions = found.partitions if found else 0
    adopted = read_adoption(files) if checkpoint.newest is not None else None
    ledger = read_ledger_ends(kafka, name, partitions)
    verdict = reconcile(checkpoint, ledger, replace(intent, adopted=adopted), adopt_ledger=adopt_ledger)
    return Comparison(verdict, checkpoint, name, partitions, adopted)


def begin(
    files: CheckpointFiles,
    topics: Topics,
    kafka: Mapping[str, Any],
    intent: Intent,
    *,
    run_id: str,
    application: str,
    timeout_ms: int,
    adopt_ledger: bool,
) -> Start:
    """Bring ledger and checkpoint to agree, or raise the refusal. Writes nothing to the sink."""
    # Once before the fence: a stream that is refused must not have disturbed the one whose ledger this is.
    seen = compare(files, topics, kafka, intent, adopt_ledger=adopt_ledger)
    checkpoint, name, partitions, adopted = seen.checkpoint, seen.topic, seen.partitions, seen.adopted
    fence_lanes(kafka, intent, max(intent.lanes, partitions), timeout_ms)
    ledger = read_ledger_ends(kafka, name, partitions)
    verdict = reconcile(checkpoint, ledger, replace(intent, adopted=adopted), adopt_ledger=adopt_ledger)
    topics.ensure_ledger(name, intent.lanes)
    end = committed_end(files, checkpoint.committed)
    if verdict.adopt is not None:
        adopted = verdict.adopt
        files.write(ADOPTION, json.dumps({"format": FORMAT, "query_id": adopted.query_id, "batch": adopted.batch}))
        end = next(r.end for r in ledger if r is not None and r.batch == adopted.batch)
    if verdict.anchor_at is not None:
        here = replace(
            intent,
            query_id=checkpoint.query_id or "",
            batch=verdict.anchor_at,
            digest=checkpoint.digests[verdict.anchor_at],
        )
        write_anchors(kafka, here, end, run_id=run_id, application=application, timeout_ms=timeout_ms)
    left = _left_batch(checkpoint, ledger[: intent.lanes], accepted_batch(files.read(ACCEPTED)))
    return Start(verdict, checkpoint, end, adopted, left)


def _left_batch(
    checkpoint: CheckpointEnd, ledger: Sequence[LedgerRecord | None], accepted: tuple[str, int] | None
) -> LeftBatch | None:
    batch = checkpoint.in_doubt
    if batch is None:
        return None
    there = [
        r for r in ledger if r is not None and r.kind == BATCH and (r.query_id, r.batch) == (checkpoint.query_id, batch)
    ]
    ledger_format = there[0].format if there else LEDGER_FORMAT
    return LeftBatch(batch, len(there), ledger_format, accepted == (checkpoint.query_id, batch))


def read_adoption(files: ReadableFiles) -> Adoption | None:
    """The end of another query's ledger that the checkpoint's query took over."""
    if not (stored := files.read(ADOPTION)):
        return None
    document = parse(stored, "adoption record")
    return Adoption(document["query_id"], int(document["batch"]))


def committed_end(files: ReadableFiles, batch: int | None) -> Offsets:
    text = files.read(f"offsets/{batch}") if batch is not None else None
    return parse_offsets(text, f"offsets/{batch}").kafka if text else {}


def fence_lanes(kafka: Mapping[str, Any], intent: Intent, lanes: int, timeout_ms: int) -> None:
    """Fence whoever wrote to the lanes before, former lanes included: their open transactions are aborted."""

    def fence(lane: int) -> None:
        Transaction(kafka, transactional_id(intent.sink_id, lane), timeout_ms, intent.topic).close()

    with ThreadPoolExecutor(FENCES_AT_ONCE) as pool:
        list(pool.map(fence, range(lanes)))


def read_ledger_ends(kafka: Mapping[str, Any], topic: str, partitions: int) -> list[LedgerRecord | None]:
    """The last record of every lane that ever was."""
    if partitions == 0:
        return []
    with open_reader(kafka) as reader:
        return [read_last(reader, topic, lane) for lane in range(partitions)]


def write_anchors(
    kafka: Mapping[str, Any], at: Intent, end: Offsets, *, run_id: str, application: str, timeout_ms: int
) -> None:
    """Anchor every lane at a committed batch, all in one transaction: the next batch then finds its predecessor."""
    transaction = Transaction(kafka, transactional_id(at.sink_id, 0), timeout_ms, at.topic)
    transaction.begin()
    try:
        for lane in range(at.lanes):
            record = LedgerRecord(
                sink_id=at.sink_id,
                query_id=at.query_id,
                run_id=run_id,
                lane=lane,
                lanes=at.lanes,
                batch=at.batch,
                digest=at.digest,
                start=end,
                end=end,
                records=0,
                checksum=0,
                topic=at.topic,
                topic_id=at.topic_id,
                application=application,
                time=now(),
                kind=ANCHOR,
            )
            transaction.produce(ledger_topic(at.sink_id), key=record.key, value=record.to_json(), partition=lane)
        transaction.flush()
    except BaseException:
        transaction.abort()
        raise
    transaction.commit(f"anchor the ledger {ledger_topic(at.sink_id)}", {"batch": at.batch})
    transaction.close()
