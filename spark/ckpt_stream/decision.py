"""The table of decisions: what a lane does with a batch, given the last record of its ledger. Pure.

| ledger says                  | and                         | then    |
| ---------------------------- | --------------------------- | ------- |
| nothing at all               | it is the first batch       | produce |
| the batch before this one    | same query, topic and lanes | produce |
| this batch                   | same input and lanes        | skip    |
| anything else                |                             | refuse  |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerAhead, LedgerLost, OtherInput, SinkRecreated
from ckpt_stream.ledger import ANCHOR, LedgerRecord, ledger_topic

FIRST_BATCH = 0


class Action(Enum):
    PRODUCE = "produce"
    SKIP = "skip"


@dataclass(frozen=True)
class Decision:
    action: Action
    #: What a skipped lane's rows must add up to; None when the ledger holds no sums (an anchor).
    expected: LedgerRecord | None = None


@dataclass(frozen=True)
class Adoption:
    """The end of another query's ledger, which a new checkpoint of a stateless stream takes over."""

    query_id: str
    batch: int


@dataclass(frozen=True)
class Intent:
    """What a lane is about to write."""

    sink_id: str
    query_id: str
    lanes: int
    batch: int
    digest: str
    topic: str
    topic_id: str
    adopted: Adoption | None = None


def decide(last: LedgerRecord | None, lane: int, intent: Intent) -> Decision:
    """Produce, skip, or raise the refusal that names what is wrong."""
    batch = intent.batch
    if last is None:
        if batch == FIRST_BATCH and intent.adopted is None:
            return Decision(Action.PRODUCE)
        raise _lost(lane, intent, "holds no record at all")
    if last.query_id != intent.query_id:
        adopted = intent.adopted
        if batch == FIRST_BATCH and adopted and (last.query_id, last.batch) == (adopted.query_id, adopted.batch):
            return Decision(Action.PRODUCE)
        raise foreign_ledger(last, intent)
    if last.topic_id != intent.topic_id:
        raise SinkRecreated(
            f"The sink topic {intent.topic!r} has id {intent.topic_id}, the ledger's last batch {last.batch} went to "
            f"{last.topic!r} with id {last.topic_id}.",
            "The topic was deleted and made again or exchanged: what earlier batches wrote is not in it, and batches "
            "that count as written would be missing.",
            f"go back to the former topic, or accept the loss of the earlier output with "
            f"`airflow-ckpt ledger rebuild {intent.sink_id}`.",
        )
    if last.batch > batch:
        raise LedgerAhead(
            f"The checkpoint is about to write batch {batch}, but lane {lane} of {ledger_topic(intent.sink_id)} already "
            f"holds batch {last.batch} of the same query.",
            f"The checkpoint was rolled back or cloned: batches {batch} to {last.batch} would be in the sink twice.",
            "put the newest checkpoint back; for a stateless stream, start on an empty checkpoint folder with "
            '`start="ledger"`, which goes on at the offsets where the ledger ends.',
        )
    if last.batch < batch - 1:
        raise _lost(lane, intent, f"ends with batch {last.batch}")
    if last.lanes != intent.lanes:
        raise LanesChanged(
            f"Batch {last.batch} of lane {lane} was written with {last.lanes} lane(s), the stream now has {intent.lanes}.",
            f"Batch {batch} is in doubt: with other lanes its records would be divided differently, and some would be "
            "lost or doubled.",
            f"start the stream once with lanes={last.lanes}; when batch {batch} is committed, stop it and change the lanes.",
        )
    if last.batch == batch - 1:
        return Decision(Action.PRODUCE)
    if last.digest != intent.digest:
        raise OtherInput(
            f"Lane {lane} of the ledger holds batch {batch} with input digest {last.digest} and end offsets "
            f"{dict(last.end)}, the checkpoint's batch {batch} has digest {intent.digest}.",
            "The same batch number was planned over other source offsets: skipping it would lose records, writing it "
            "would double some.",
            "put the checkpoint back that wrote the ledger; for a stateless stream, start on an empty checkpoint folder "
            'with `start="ledger"`.',
        )
    return Decision(Action.SKIP, None if last.kind == ANCHOR else last)


def foreign_ledger(last: LedgerRecord, intent: Intent) -> ForeignLedger:
    return ForeignLedger(
        f"The ledger {ledger_topic(intent.sink_id)} ends with batch {last.batch} of query {last.query_id}, but the "
        f"checkpoint belongs to query {intent.query_id}.",
        "Either the checkpoint was deleted, and everything since its start would be written twice, or a second stream "
        "uses the same sink id, and the two would fence each other.",
        "put the checkpoint back; or give the second stream a sink_id of its own; or, for a stateless stream whose "
        'checkpoint is gone, set `start="ledger"` to go on where the ledger ends; or start over on purpose with '
        f"`airflow-ckpt ledger reset {intent.sink_id}`.",
    )


def _lost(lane: int, intent: Intent, found: str) -> LedgerLost:
    return LedgerLost(
        f"Lane {lane} of {ledger_topic(intent.sink_id)} {found}, but the checkpoint is at batch {intent.batch}.",
        f"Nobody can tell from it whether batch {intent.batch} is in the sink already: writing it might double its "
        "records.",
        f"if the checkpoint is right, `airflow-ckpt ledger rebuild {intent.sink_id}` anchors the ledger at it again.",
    )


@dataclass(frozen=True)
class CheckpointEnd:
    """Where a checkpoint stands: its newest batch, the newest committed one, and what identifies them."""

    query_id: str | None
    newest: int | None
    committed: int | None
    digests: Mapping[int, str]

    @property
    def in_doubt(self) -> int | None:
        return self.newest if self.newest is not None and self.newest != self.committed else None


@dataclass(frozen=True)
class Reconciliation:
    """The verdict on ledger and checkpoint at the start of a run."""

    line: str
    to_finish: tuple[int, ...] = ()
    #: The lanes must be anchored at this batch before the first new one (their number changed).
    anchor_at: int | None = None
    adopt: Adoption | None = None


def reconcile(
    checkpoint: CheckpointEnd,
    ledger: Sequence[LedgerRecord | None],
    intent: Intent,
    *,
    adopt_ledger: bool = False,
) -> Reconciliation:
    """Compare the whole ledger with the checkpoint; give one line, or raise the refusal that names what is wrong.

    ``ledger`` holds the last record of every partition of the ledger topic; ``intent`` carries the stream's identity
    (its batch and digest are filled in here).
    """
    known = [r for r in ledger if r is not None]
    if checkpoint.newest is None:
        return _fresh(known, ledger, intent, adopt_ledger=adopt_ledger)
    if checkpoint.in_doubt is not None:
        batch = checkpoint.in_doubt
        here = _at(intent, batch, checkpoint)
        decisions = [decide(_lane(ledger, lane), lane, here) for lane in range(intent.lanes)]
        to_finish = tuple(i for i, d in enumerate(decisions) if d.action is Action.PRODUCE)
        names = "all lanes" if len(to_finish) == intent.lanes else "lanes " + ", ".join(map(str, to_finish))
        what = f"{names} to finish" if to_finish else "every lane is in the sink already"
        return Reconciliation(f"batch {batch} in doubt: {what}", to_finish)
    batch = checkpoint.newest
    lanes_before = max((r.lanes for r in known if r.batch == batch), default=intent.lanes)
    here = _at(intent, batch, checkpoint, lanes=lanes_before)
    for lane in range(lanes_before):
        if decide(_lane(ledger, lane), lane, here).action is Action.PRODUCE:
            raise _lost(lane, _at(intent, batch + 1, checkpoint), f"does not hold batch {batch}")
    line = f"clean resume after batch {batch}"
    if lanes_before == intent.lanes:
        return Reconciliation(line)
    return Reconciliation(f"{line}, lanes {lanes_before} -> {intent.lanes}", anchor_at=batch)


def _fresh(
    known: list[LedgerRecord], ledger: Sequence[LedgerRecord | None], intent: Intent, *, adopt_ledger: bool
) -> Reconciliation:
    if not known:
        if adopt_ledger:
            raise _lost(0, intent, "holds no record to start from")
        return Reconciliation("fresh start")
    newest = max(known, key=lambda r: (r.time, r.batch))
    if not adopt_ledger:
        raise foreign_ledger(newest, intent)
    unfinished = [
        lane
        for lane in range(newest.lanes)
        if (last := _lane(ledger, lane)) is None or (last.query_id, last.batch) != (newest.query_id, newest.batch)
    ]
    if unfinished:
        raise LedgerLost(
            f"Batch {newest.batch} of query {newest.query_id} is in the ledger, but not for lanes {unfinished}.",
            "A new checkpoint that starts behind it would lose what those lanes had still to write.",
            "put the checkpoint back, which finishes the batch.",
        )
    if newest.lanes != intent.lanes:
        raise LanesChanged(
            f"The ledger was written with {newest.lanes} lane(s), the stream now has {intent.lanes}.",
            "The lanes that are new have nothing to take over.",
            f"set lanes={newest.lanes} for the start from the ledger; change it at a later clean stop.",
        )
    adoption = Adoption(newest.query_id, newest.batch)
    return Reconciliation(f"adopting the ledger after batch {newest.batch} of query {newest.query_id}", adopt=adoption)


def _lane(ledger: Sequence[LedgerRecord | None], lane: int) -> LedgerRecord | None:
    return ledger[lane] if lane < len(ledger) else None


def _at(intent: Intent, batch: int, checkpoint: CheckpointEnd, lanes: int | None = None) -> Intent:
    return Intent(
        intent.sink_id,
        checkpoint.query_id or "",
        lanes or intent.lanes,
        batch,
        checkpoint.digests.get(batch, ""),
        intent.topic,
        intent.topic_id,
        intent.adopted,
    )
