"""The start of a run, on the driver, before the first batch: fence every lane, read the whole ledger, compare it with
the checkpoint, and say in one line how the stream goes on, or refuse."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from ckpt_stream.checkpoint_log import RESTORE, CheckpointLogError, parse_metadata, parse_offsets
from ckpt_stream.damaged import naming
from ckpt_stream.decision import FIRST_BATCH, Adoption, CheckpointEnd, Intent, Reconciliation, reconcile
from ckpt_stream.errors import Fenced, LedgerLost, LedgerUndecided
from ckpt_stream.files import CheckpointFiles, ReadableFiles
from ckpt_stream.ledger import ANCHOR, BATCH, LedgerRecord, Offsets, digest, ledger_topic, transactional_id
from ckpt_stream.ledger import FORMAT as LEDGER_FORMAT
from ckpt_stream.ledger_reader import open_reader, read_last, undecided
from ckpt_stream.ledger_safety import Durability, refuse_unsafe
from ckpt_stream.log_ends import LOOKS, log_ends
from ckpt_stream.run_record import ACCEPTED, ADOPTION, FORMAT, accepted_batch, now, parse
from ckpt_stream.sink import LeftBatch, start_offsets
from ckpt_stream.topics import Topic, Topics
from ckpt_stream.transaction import Transaction

log = logging.getLogger(__name__)

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
class Look:
    """Ledger and checkpoint as they are found."""

    checkpoint: CheckpointEnd
    sink: Topic
    #: The ledger topic, which has no partitions yet before a first start.
    topic: str
    partitions: int
    adopted: Adoption | None
    #: The last record of every lane that ever was.
    ledger: Sequence[LedgerRecord | None]
    #: The checkpoint stood still meanwhile and, if that was asked for, readers saw all that was in the ledger.
    settled: bool = True

    def last(self, lane: int) -> LedgerRecord | None:
        return self.ledger[lane] if lane < len(self.ledger) else None

    def reconcile(self, intent: Intent, *, adopt_ledger: bool) -> Reconciliation:
        return reconcile(self.checkpoint, self.ledger, replace(intent, adopted=self.adopted), adopt_ledger=adopt_ledger)


def _look(
    files: ReadableFiles, topics: Topics, kafka: Mapping[str, Any], intent: Intent, *, settle: bool = False
) -> Look:
    """First the checkpoint, then the ledger: what was committed before the one was read is in the other."""
    checkpoint = checkpoint_end(files)
    name = ledger_topic(intent.sink_id)
    found = topics.find(name)
    if checkpoint.newest is not None and found is None:
        raise LedgerLost(
            f"The ledger topic {name} does not exist, but the checkpoint is at batch {checkpoint.newest}.",
            "So it is unknown whether the newest batch is in the sink already: it might be written twice.",
            f"if the checkpoint is right, `airflow-ckpt ledger rebuild {intent.sink_id}` makes the ledger anew from it.",
        )
    sink = topics.get(intent.topic, "sink")
    if found is not None:
        _refuse_unsafe(*topics.durability(found, sink))
    here = Look(checkpoint, sink, name, found.partitions if found else 0, None, ())
    return _read_ledger(files, topics, kafka, here, settle=settle)


def _read_ledger(
    files: ReadableFiles, topics: Topics, kafka: Mapping[str, Any], seen: Look, *, settle: bool = False
) -> Look:
    """The ledger as it is at a moment at which the checkpoint is where it was seen.

    A driver that is dying may still commit a batch, and note it: its ledger is compared with no older checkpoint.
    """
    checkpoint = seen.checkpoint
    for _ in range(LOOKS):
        settled = topics.settle(seen.topic) if settle and seen.partitions else True
        ledger = read_ledger_ends(kafka, seen.topic, seen.partitions)
        before, checkpoint = checkpoint, checkpoint_end(files)
        if checkpoint == before:
            break
    else:
        settled = False
    adopted = read_adoption(files) if checkpoint.newest is not None else None
    return replace(seen, checkpoint=checkpoint, ledger=ledger, adopted=adopted, settled=settled)


def _refuse_unsafe(ledger: Durability, sink: Durability) -> None:
    # A stream that ran with these rights until now goes on: what cannot be looked at is no proof that it is wrong.
    if unread := [each.topic for each in (ledger, sink) if each.settings is None]:
        log.warning(
            "The settings of %s cannot be read, so it was not checked that the ledger %s is compacted and as safe as the "
            "sink. What helps: grant the stream's user DescribeConfigs on them, e.g. `kafka-acls.sh --bootstrap-server ... "
            "--add --allow-principal User:... --operation DescribeConfigs --topic %s`",
            " and ".join(unread),
            ledger.topic,
            unread[0],
        )
    refuse_unsafe(ledger, sink)


def compare(
    files: ReadableFiles, topics: Topics, kafka: Mapping[str, Any], intent: Intent, *, adopt_ledger: bool
) -> Reconciliation:
    """Compare ledger and checkpoint without touching either; raises the refusal that a start would meet.

    A commit is answered before its marker is in the ledger, and until then readers do not see its record. So the lack of a
    record is a refusal only when readers see everything; until then it is undecided.
    """
    try:
        return _look(files, topics, kafka, intent).reconcile(intent, adopt_ledger=adopt_ledger)
    except LedgerLost:
        again = _look(files, topics, kafka, intent, settle=True)
        try:
            return again.reconcile(intent, adopt_ledger=adopt_ledger)
        except LedgerLost as lack:
            if again.settled:
                raise
            raise LedgerUndecided(
                f"{lack.found} This is undecided: a transaction in {again.topic} has not ended, or its end is still being "
                "written, and readers do not see what it holds; or the checkpoint goes on at this moment. What helps: look "
                "again in a moment; or start the stream, whose driver ends the transaction before it decides."
            ) from lack


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
    seen = _look(files, topics, kafka, intent)
    if not seen.settled:
        raise undecided(seen.topic, f"The checkpoint goes on while {seen.topic} is read: another driver is alive.")
    # A stream that is refused must not have disturbed the one whose ledger this is. Only for a lack of records the fence
    # comes first: it ends what is still open, and waits for markers that are late.
    with suppress(LedgerLost):
        seen.reconcile(intent, adopt_ledger=adopt_ledger)
    fence_lanes(kafka, intent, max(intent.lanes, seen.partitions), timeout_ms)
    seen = _read_ledger(files, topics, kafka, seen, settle=True)
    if not seen.settled:
        raise undecided(
            seen.topic, f"The checkpoint goes on while {seen.topic} is read, or a transaction in it has not ended."
        )
    verdict = seen.reconcile(intent, adopt_ledger=adopt_ledger)
    topics.ensure_ledger(seen.topic, intent.lanes, seen.sink)
    adopted, end = seen.adopted, committed_end(files, seen.checkpoint.committed)
    if verdict.adopt is not None:
        adopted = verdict.adopt
        files.write(ADOPTION, json.dumps({"format": FORMAT, "query_id": adopted.query_id, "batch": adopted.batch}))
        end = next(r.end for r in seen.ledger if r is not None and r.batch == adopted.batch)
    elif seen.checkpoint.newest is None:
        files.remove(ADOPTION)  # of a query that was here before the ledger was reset
    if verdict.anchors is not None:
        at = verdict.anchors.at
        write_anchors(
            kafka,
            replace(intent, query_id=at.query_id, batch=at.batch, digest=at.digest),
            start_offsets(files, FIRST_BATCH) if at.batch < FIRST_BATCH else at.end,
            {lane: seen.last(lane) for lane in verdict.anchors.lanes},
            run_id=run_id,
            application=application,
            timeout_ms=timeout_ms,
        )
    with naming(ACCEPTED):
        accepted = accepted_batch(files.read(ACCEPTED))
    left = _left_batch(seen.checkpoint, seen.ledger[: intent.lanes], accepted)
    return Start(verdict, seen.checkpoint, end, adopted, left)


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
    attempts = {r.attempt or None for r in there}
    attempt = attempts.pop() if len(attempts) == 1 else None
    return LeftBatch(batch, len(there), ledger_format, attempt, accepted == (checkpoint.query_id, batch))


def read_adoption(files: ReadableFiles) -> Adoption | None:
    """The end of another query's ledger that the checkpoint's query took over."""
    with naming(ADOPTION):
        if not (stored := files.read(ADOPTION)):
            return None
        document = parse(stored, "adoption record")
        return Adoption(document["query_id"], int(document["batch"]))


def committed_end(files: ReadableFiles, batch: int | None) -> Offsets:
    text = files.read(f"offsets/{batch}") if batch is not None else None
    return parse_offsets(text, f"offsets/{batch}").kafka if text else {}


def fence_lanes(kafka: Mapping[str, Any], intent: Intent, lanes: int, timeout_ms: int) -> None:
    """Fence the former writers of all lanes, also of those that the stream no longer has: their open transactions are aborted."""

    def fence(lane: int) -> None:
        Transaction(kafka, transactional_id(intent.sink_id, lane), timeout_ms, intent.topic).close()

    with ThreadPoolExecutor(FENCES_AT_ONCE) as pool:
        list(pool.map(fence, range(lanes)))


def read_ledger_ends(kafka: Mapping[str, Any], topic: str, partitions: int) -> list[LedgerRecord | None]:
    """The last record of every lane that ever was."""
    if partitions == 0:
        return []
    with open_reader(kafka) as reader:
        return [read_last(reader, topic, lane, fenced=False) for lane in range(partitions)]


def write_anchors(
    kafka: Mapping[str, Any],
    at: Intent,
    end: Offsets,
    lasts: Mapping[int, LedgerRecord | None],
    *,
    run_id: str,
    application: str,
    timeout_ms: int,
) -> None:
    """Anchor lanes at a batch, one after the other: the next batch then finds its predecessor, and how it is divided.

    ``lasts``: the lanes in the order in which to anchor them, with their last records as they were seen. Each is fenced
    once more by a transaction of its own, and looked at: an attempt of a former driver that is still alive may have
    committed in between, and one that comes later finds the anchor.
    """
    topic = ledger_topic(at.sink_id)
    for lane, seen in lasts.items():
        with closing(Transaction(kafka, transactional_id(at.sink_id, lane), timeout_ms, at.topic)) as transaction:
            with open_reader(kafka) as reader:
                last = read_last(reader, topic, lane)
            if last != seen:
                raise Fenced(
                    f"Lane {lane} of {topic} was written to while it was to be anchored at batch {at.batch}: an attempt of "
                    "a former driver was still alive. Nothing is lost: the next start looks again."
                )
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
            transaction.begin()
            try:
                transaction.produce(topic, key=record.key, value=record.to_json(), partition=lane)
                transaction.flush()
            except BaseException:
                transaction.abort()
                raise
            transaction.commit(f"anchor lane {lane} of {topic}", {"batch": at.batch, "lane": lane})
