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
from dataclasses import dataclass, replace
from enum import Enum

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerAhead, LedgerLost, OtherInput, SinkRecreated
from ckpt_stream.ledger import ANCHOR, LedgerRecord, ledger_topic
from ckpt_stream.run_record import replaced

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
    position, of_query = last.batch, ""
    if last.query_id != intent.query_id:
        if intent.adopted != Adoption(last.query_id, last.batch):
            raise foreign_ledger(last, intent)
        # An adopted ledger ends just before the first batch.
        position, of_query = FIRST_BATCH - 1, f" of the adopted query {last.query_id}"
    if last.topic_id != intent.topic_id:
        raise _recreated(
            last,
            intent,
            "go back to the former topic, or accept the loss of the earlier output with "
            f"`airflow-ckpt ledger rebuild {intent.sink_id}`.",
        )
    if position > batch:
        raise _ahead(last, lane, intent)
    if position < batch - 1:
        raise _lost(lane, intent, f"ends with batch {last.batch}{of_query}")
    if last.lanes != intent.lanes:
        raise _lanes_changed(last, lane, intent)
    if position == batch - 1:
        return Decision(Action.PRODUCE)
    if last.digest != intent.digest:
        raise OtherInput(
            f"Lane {lane} of the ledger holds batch {batch} with input digest {last.digest} and end offsets "
            f"{dict(last.end)}, the checkpoint's batch {batch} has digest {intent.digest}.",
            "The same batch number was planned over other source offsets: skipping it would lose records, writing it "
            "would double some.",
            "put the checkpoint back that wrote the ledger; for a stateless stream, start on an empty checkpoint folder "
            'with `start="ledger"`. If the batch was planned anew over an accepted loss while an attempt of a former driver '
            f"was still alive, the checkpoint has the plan that is in the ledger: copy {replaced(batch, last.digest)} over "
            f"offsets/{batch}, and delete offsets/.{batch}.crc where there is one.",
        )
    return Decision(Action.SKIP, None if last.kind == ANCHOR else last)


def foreign_ledger(last: LedgerRecord, intent: Intent) -> ForeignLedger:
    mine = f"belongs to query {intent.query_id}" if intent.query_id else "holds no batch yet"
    return ForeignLedger(
        f"The ledger {ledger_topic(intent.sink_id)} ends with batch {last.batch} of query {last.query_id}, but the "
        f"checkpoint {mine}.",
        "Either the checkpoint was deleted, and everything since its start would be written twice, or a second stream "
        "uses the same sink id, and the two would fence each other.",
        "put the checkpoint back; or give the second stream a sink_id of its own; or, for a stateless stream whose "
        'checkpoint is gone, set `start="ledger"` to go on where the ledger ends; or start over on purpose with '
        f"`airflow-ckpt ledger reset {intent.sink_id}`.",
    )


def _recreated(last: LedgerRecord, intent: Intent, helps: str) -> SinkRecreated:
    return SinkRecreated(
        f"The sink topic {intent.topic!r} has id {intent.topic_id}, the ledger's last batch {last.batch} went to "
        f"{last.topic!r} with id {last.topic_id}.",
        "The topic was deleted and made again or exchanged: what earlier batches wrote is not in it, and batches "
        "that count as written would be missing.",
        helps,
    )


def _ahead(last: LedgerRecord, lane: int, intent: Intent) -> LedgerAhead:
    return LedgerAhead(
        f"The checkpoint is about to write batch {intent.batch}, but lane {lane} of {ledger_topic(intent.sink_id)} already "
        f"holds batch {last.batch} of the same query.",
        f"The checkpoint was rolled back or cloned: batches {intent.batch} to {last.batch} would be in the sink twice.",
        "put the newest checkpoint back; for a stateless stream, start on an empty checkpoint folder with "
        '`start="ledger"`, which goes on at the offsets where the ledger ends.',
    )


def _lanes_changed(last: LedgerRecord, lane: int, intent: Intent) -> LanesChanged:
    return LanesChanged(
        f"Batch {last.batch} of lane {lane} was written with {last.lanes} lane(s), the stream now has {intent.lanes}.",
        f"Batch {intent.batch} is in doubt: with other lanes its records would be divided differently, and some would "
        "be lost or doubled.",
        f"start the stream once with lanes={last.lanes}; when batch {intent.batch} is committed, stop it and change the "
        "lanes.",
    )


def _lost(lane: int, intent: Intent, found: str) -> LedgerLost:
    return LedgerLost(
        f"Lane {lane} of {ledger_topic(intent.sink_id)} {found}, but the checkpoint is at batch {intent.batch}.",
        f"So it is unknown whether batch {intent.batch} is in the sink already: writing it might double its records.",
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
class Anchors:
    """Where the stream stands, and the lanes that must learn there how many lanes there are now."""

    at: LedgerRecord
    #: Lane 0 comes last: its record says how many lanes there are, so until the very end the change counts as not made.
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class Reconciliation:
    """The verdict on ledger and checkpoint at the start of a run."""

    line: str
    to_finish: tuple[int, ...] = ()
    #: To be written before the first new batch: the number of lanes was changed.
    anchors: Anchors | None = None
    adopt: Adoption | None = None


def reconcile(
    checkpoint: CheckpointEnd,
    ledger: Sequence[LedgerRecord | None],
    intent: Intent,
    *,
    adopt_ledger: bool = False,
) -> Reconciliation:
    """Compare the whole ledger with the checkpoint; give one line, or raise the refusal that names what is wrong.

    ``ledger`` holds the last record of every partition of the ledger topic; it is empty when there is no such topic.
    ``intent`` carries the stream's identity (its query, batch and digest are filled in here).
    """
    if checkpoint.newest is None:
        return _fresh(ledger, intent, adopt_ledger=adopt_ledger)
    if not ledger:
        raise _lost(0, _at(intent, checkpoint.newest, checkpoint), "does not exist")
    if checkpoint.in_doubt is not None:
        return _in_doubt(ledger, _at(intent, checkpoint.in_doubt, checkpoint))
    return _clean(checkpoint, ledger, intent, checkpoint.newest)


def _in_doubt(ledger: Sequence[LedgerRecord | None], here: Intent) -> Reconciliation:
    begun = [r for r in ledger if r is not None and (r.query_id, r.batch) == (here.query_id, here.batch)]
    if begun:
        _refuse_half_a_rebuild(begun, here)
        return _partly_written(ledger, here, begun[0])
    # Of this batch nothing is in the sink: it may be divided anew.
    line = f"batch {here.batch} in doubt: all lanes to finish"
    first = _lane(ledger, 0)
    before = replace(here, lanes=first.lanes if first is not None else max(here.lanes, len(ledger)))
    for lane in range(before.lanes):
        decide(_anywhere(_lane(ledger, lane), before.lanes), lane, before)
    everything = tuple(range(here.lanes))
    anchors = _anchors(ledger, here.lanes) if first is not None else _first_anchors(ledger, here)
    return Reconciliation(line + _change(first, anchors, here.lanes), everything, anchors)


def _first_anchors(ledger: Sequence[LedgerRecord | None], here: Intent) -> Anchors | None:
    """The very first batch is in doubt, and nothing tells with how many lanes it was begun, except that it was only one.

    Anchored before that batch, an attempt of a former driver with other lanes finds how many there are now.
    """
    if len(ledger) == here.lanes == 1:
        return None
    lanes = range(max(len(ledger), here.lanes))
    at = LedgerRecord(
        sink_id=here.sink_id,
        query_id=here.query_id,
        run_id="",
        lane=0,
        lanes=here.lanes,
        batch=FIRST_BATCH - 1,
        digest="",
        start={},
        end={},
        records=0,
        checksum=0,
        topic=here.topic,
        topic_id=here.topic_id,
        application="",
        time="",
        kind=ANCHOR,
    )
    return Anchors(at, tuple(reversed(lanes)))


def _refuse_half_a_rebuild(begun: Sequence[LedgerRecord], here: Intent) -> None:
    """Only `airflow-ckpt ledger rebuild --in-doubt done` anchors a lane at the batch in doubt, and it anchors them all."""
    missing = sorted(set(range(begun[0].lanes)) - {r.lane for r in begun})
    if missing and all(r.kind == ANCHOR for r in begun):
        raise LedgerLost(
            f"Batch {here.batch} is in doubt, and a user has counted it as written in {ledger_topic(here.sink_id)}, but of "
            f"{begun[0].lanes} lane(s) {', '.join(map(str, missing))} do not say so: the rebuild was interrupted.",
            "If the batch is in the sink, these lanes would be written twice.",
            f"finish the rebuild: `airflow-ckpt ledger rebuild {here.sink_id} --checkpoint ... --sink {here.topic} "
            f"--lanes {begun[0].lanes} --in-doubt done`.",
        )


def _partly_written(ledger: Sequence[LedgerRecord | None], here: Intent, begun: LedgerRecord) -> Reconciliation:
    """Some lanes of the batch are in the sink, so that the others must be written as it was divided then."""
    if begun.lanes != here.lanes:
        raise _lanes_changed(begun, begun.lane, here)
    lasts = [_lane(ledger, lane) for lane in range(here.lanes)]
    decisions = [decide(_anywhere(last, here.lanes), lane, here) for lane, last in enumerate(lasts)]
    to_finish = tuple(i for i, d in enumerate(decisions) if d.action is Action.PRODUCE)
    what = f"lanes {', '.join(map(str, to_finish))} to finish" if to_finish else "every lane is in the sink already"
    # Anchors of a change of lanes that was begun before a late attempt of a former driver committed a lane of this batch.
    stale = {lane: last for lane in to_finish if (last := lasts[lane]) is not None and last.lanes != here.lanes}
    anchors = Anchors(next(iter(stale.values())), tuple(sorted(stale, reverse=True))) if stale else None
    return Reconciliation(f"batch {here.batch} in doubt: {what}", to_finish, anchors)


def _clean(
    checkpoint: CheckpointEnd, ledger: Sequence[LedgerRecord | None], intent: Intent, batch: int
) -> Reconciliation:
    # Lane 0 is in every division, and its last record is of the last one; other lanes may be left over from a wider one.
    first = _lane(ledger, 0)
    lanes_before = first.lanes if first is not None else intent.lanes
    here = _at(intent, batch, checkpoint, lanes=lanes_before)
    for lane in range(lanes_before):
        last = _lane(ledger, lane)
        try:
            held = decide(_anywhere(last, lanes_before), lane, here).action is Action.SKIP
        except LedgerAhead:
            assert last is not None  # noqa: S101 - what is ahead is there
            raise _ahead(last, lane, replace(here, batch=batch + 1)) from None
        if not held:
            found = f"ends with batch {last.batch} of query {last.query_id}" if last else "holds no record at all"
            raise _lost(lane, here, found)
    line = f"clean resume after batch {batch}"
    anchors = _anchors(ledger, intent.lanes)
    return Reconciliation(line + _change(first, anchors, intent.lanes), anchors=anchors)


def _anywhere(last: LedgerRecord | None, lanes: int) -> LedgerRecord | None:
    """An anchor of a change that was begun and not finished stands for its batch, whatever the number of lanes."""
    return replace(last, lanes=lanes) if last is not None and last.kind == ANCHOR else last


def _anchors(ledger: Sequence[LedgerRecord | None], lanes: int) -> Anchors | None:
    """What tells every lane how many there are now, where lane 0 stands; None if those of the stream know it already.

    A lane that the stream no longer has is told as well: an attempt of the former driver that is still alive must not find
    there that its batch is next.
    """
    at = _lane(ledger, 0)
    if at is None:
        return None
    stands = {n: r for n, r in enumerate(ledger) if r is not None and (r.query_id, r.batch) == (at.query_id, at.batch)}
    know = {lane for lane, last in stands.items() if last.lanes == lanes}
    if know.issuperset(range(lanes)):
        return None
    return Anchors(at, tuple(sorted({*range(lanes), *stands} - know, reverse=True)))


def _change(first: LedgerRecord | None, anchors: Anchors | None, lanes: int) -> str:
    return f", lanes {first.lanes} -> {lanes}" if first is not None and anchors is not None else ""


def _fresh(ledger: Sequence[LedgerRecord | None], intent: Intent, *, adopt_ledger: bool) -> Reconciliation:
    known = {lane: last for lane, last in enumerate(ledger) if last is not None}
    if not known:
        if adopt_ledger:
            raise LedgerLost(
                f"The ledger {ledger_topic(intent.sink_id)} holds no record to start from.",
                "So it is unknown what is in the sink already: a start elsewhere might double or lose records.",
                'correct the sink_id; or, if the sink is empty, choose another start, e.g. `start="earliest"`.',
            )
        return Reconciliation("fresh start")
    # Lane 0 is in every division of the stream, so its last record is of the newest batch or of the one before it.
    newest = known.get(0, next(iter(known.values())))
    if not adopt_ledger:
        raise foreign_ledger(newest, intent)
    end = (newest.query_id, newest.batch)
    if any(lane not in known or (known[lane].query_id, known[lane].batch) != end for lane in range(newest.lanes)):
        held = (
            f"lane {n} {f'ends with batch {known[n].batch} of query {known[n].query_id}' if n in known else 'is empty'}"
            for n in range(newest.lanes)
        )
        raise LedgerLost(
            f"The last batch in the ledger {ledger_topic(intent.sink_id)} is unfinished: {', '.join(held)}.",
            "A new checkpoint that starts behind it would lose what the other lanes had still to write.",
            "put the checkpoint back, which finishes the batch.",
        )
    if newest.topic_id != intent.topic_id:
        raise _recreated(
            newest,
            intent,
            "go back to the former topic, or start over on purpose with "
            f"`airflow-ckpt ledger reset {intent.sink_id}` and another start.",
        )
    if newest.lanes != intent.lanes:
        raise LanesChanged(
            f"The ledger was written with {newest.lanes} lane(s), the stream now has {intent.lanes}.",
            "The lanes that are new have nothing to take over.",
            f"set lanes={newest.lanes} for the start from the ledger; change it at a later clean stop.",
        )
    return Reconciliation(
        f"adopting the ledger after batch {newest.batch} of query {newest.query_id}",
        anchors=_anchors(ledger, newest.lanes),
        adopt=Adoption(newest.query_id, newest.batch),
    )


def _lane(ledger: Sequence[LedgerRecord | None], lane: int) -> LedgerRecord | None:
    return ledger[lane] if lane < len(ledger) else None


def _at(intent: Intent, batch: int, checkpoint: CheckpointEnd, lanes: int | None = None) -> Intent:
    return replace(
        intent,
        query_id=checkpoint.query_id or "",
        lanes=lanes or intent.lanes,
        batch=batch,
        digest=checkpoint.digests.get(batch, ""),
    )
