"""Compares the ledger with the checkpoint at the start of a run: how the stream continues, or why it is refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ckpt_stream.errors import LanesChanged, LedgerAhead, LedgerLost
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.batch_to_write import FIRST_BATCH, BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.decision import Action, decide
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, ledger_topic
from ckpt_stream.protocol.ledger.ledger_refusals import (
    foreign_ledger,
    lanes_changed,
    ledger_ahead,
    ledger_lost,
    sink_recreated,
)
from ckpt_stream.protocol.run_files.adoption import Adoption


@dataclass(frozen=True)
class AnchorsToWrite:
    """Anchors that record a changed number of lanes, written before the first batch with that number."""

    #: The record of the batch that the anchors repeat.
    at: LedgerRecord
    #: In the order of writing. Lane 0 comes last: its record has the number of lanes, so the change counts only from then on.
    lanes: tuple[int, ...]


class Resume(Enum):
    """The ways in which a stream continues."""

    #: An at-least-once stream, which has no ledger.
    UNCHECKED = "unchecked"
    #: Neither checkpoint nor ledger has a batch.
    FRESH = "fresh"
    #: A new checkpoint continues where the ledger of a former checkpoint ends.
    ADOPTED = "adopted"
    #: The newest batch is committed, and its records are in the sink.
    CLEAN = "clean"
    #: The newest batch is in doubt, and nothing of it is in the sink.
    IN_DOUBT = "in_doubt"
    #: The newest batch is in doubt, and some or all of its lanes are in the sink.
    IN_DOUBT_BEGUN = "in_doubt_begun"


@dataclass(frozen=True)
class Reconciliation:
    """How a stream continues, according to its ledger and its checkpoint."""

    kind: Resume
    #: The newest batch of the checkpoint; None: it has none.
    batch: int | None = None
    #: The lanes of the batch in doubt that are not in the sink yet.
    to_finish: tuple[int, ...] = ()
    #: These are written before the first new batch.
    anchors: AnchorsToWrite | None = None
    adopt: Adoption | None = None
    #: The former and the present number of lanes, if the ledger shows that it has changed.
    lanes_changed: tuple[int, int] | None = None

    @property
    def line(self) -> str:
        """For the log and the run record."""
        text = self._words()
        return f"{text}, lanes {self.lanes_changed[0]} -> {self.lanes_changed[1]}" if self.lanes_changed else text

    def _words(self) -> str:
        match self.kind:
            case Resume.UNCHECKED:
                return "at-least-once: nothing to reconcile"
            case Resume.FRESH:
                return "fresh start"
            case Resume.ADOPTED:
                assert self.adopt is not None  # noqa: S101 - always set for this kind
                return f"adopting the ledger after batch {self.adopt.batch} of query {self.adopt.query_id}"
            case Resume.CLEAN:
                return f"clean resume after batch {self.batch}"
            case Resume.IN_DOUBT:
                return f"batch {self.batch} in doubt: all lanes to finish"
            case Resume.IN_DOUBT_BEGUN:
                left = ", ".join(map(str, self.to_finish))
                what = f"lanes {left} to finish" if left else "every lane is in the sink already"
                return f"batch {self.batch} in doubt: {what}"


def reconcile(
    checkpoint: IntactCheckpoint,
    ledger: Sequence[LedgerRecord | None],
    sink: SinkIdentity,
    adopted: Adoption | None = None,
    *,
    adopt_ledger: bool = False,
) -> Reconciliation:
    """Compare the whole ledger with the checkpoint; return how the stream continues, or raise the refusal that says why not.

    ``ledger`` holds the last record of every partition of the ledger topic; it is empty when there is no such topic.
    ``adopted`` is the end of the ledger that the checkpoint's query adopted earlier. With ``adopt_ledger``, a checkpoint without
    a batch adopts this ledger.
    """
    if checkpoint.newest is None:
        return _fresh(ledger, sink, adopt_ledger=adopt_ledger)
    newest = BatchToWrite(
        sink, checkpoint.query_id or "", checkpoint.newest, checkpoint.digests[checkpoint.newest], adopted
    )
    if not ledger:
        raise ledger_lost(0, newest, "does not exist")
    return _clean(ledger, newest) if checkpoint.in_doubt is None else _in_doubt(ledger, newest)


def _in_doubt(ledger: Sequence[LedgerRecord | None], here: BatchToWrite) -> Reconciliation:
    begun = [r for r in ledger if r is not None and (r.query_id, r.batch) == (here.query_id, here.batch)]
    if begun:
        _refuse_half_a_rebuild(begun, here)
        return _partly_written(ledger, here, begun[0])
    # No lane of this batch is in the sink: it may be divided in another way.
    first = _lane(ledger, 0)
    lanes = here.sink.lanes
    lanes_before = first.lanes if first is not None else max(lanes, len(ledger))
    for lane in range(lanes_before):
        decide(_ignoring_lanes_of_anchor(_lane(ledger, lane), lanes_before), lane, here.divided_into(lanes_before))
    anchors = _anchors(ledger, lanes) if first is not None else _first_anchors(ledger, here)
    return Reconciliation(
        Resume.IN_DOUBT,
        here.batch,
        to_finish=tuple(range(lanes)),
        anchors=anchors,
        lanes_changed=_change(first, anchors, lanes),
    )


def _first_anchors(ledger: Sequence[LedgerRecord | None], here: BatchToWrite) -> AnchorsToWrite | None:
    """Batch 0 is in doubt, and it is unknown with how many lanes it was begun, unless there is only one lane.

    The anchors are written before that batch, so that an attempt of a former driver with another number of lanes is refused.
    """
    sink = here.sink
    if len(ledger) == sink.lanes == 1:
        return None
    lanes = range(max(len(ledger), sink.lanes))
    at = LedgerRecord(
        sink_id=sink.sink_id,
        query_id=here.query_id,
        run_id="",
        lane=0,
        lanes=sink.lanes,
        batch=FIRST_BATCH - 1,
        digest="",
        start={},
        end={},
        records=0,
        checksum=0,
        topic=sink.topic,
        topic_id=sink.topic_id,
        application="",
        time="",
        kind=ANCHOR,
    )
    return AnchorsToWrite(at, tuple(reversed(lanes)))


def _refuse_half_a_rebuild(begun: Sequence[LedgerRecord], here: BatchToWrite) -> None:
    """Refuse if `airflow-ckpt ledger rebuild --in-doubt done` was interrupted: only that anchors lanes at the batch in doubt."""
    missing = sorted(set(range(begun[0].lanes)) - {r.lane for r in begun})
    if missing and all(r.kind == ANCHOR for r in begun):
        raise LedgerLost(
            f"Batch {here.batch} is in doubt. A user has marked it as written in {ledger_topic(here.sink.sink_id)}, but of "
            f"{begun[0].lanes} lane(s) {', '.join(map(str, missing))} have no such mark: the rebuild was interrupted.",
            "If the batch is in the sink, these lanes would be written twice.",
            f"finish the rebuild: `airflow-ckpt ledger rebuild {here.sink.sink_id} --checkpoint ... --sink "
            f"{here.sink.topic} --lanes {begun[0].lanes} --in-doubt done`.",
        )


def _partly_written(ledger: Sequence[LedgerRecord | None], here: BatchToWrite, begun: LedgerRecord) -> Reconciliation:
    """Some lanes of the batch are in the sink, so the others must be written with the same number of lanes."""
    lanes = here.sink.lanes
    if begun.lanes != lanes:
        raise lanes_changed(begun, begun.lane, here)
    lasts = [_lane(ledger, lane) for lane in range(lanes)]
    decisions = [decide(_ignoring_lanes_of_anchor(last, lanes), lane, here) for lane, last in enumerate(lasts)]
    to_finish = tuple(i for i, d in enumerate(decisions) if d.action is Action.PRODUCE)
    # These anchors belong to a change of lanes: it was begun before a late attempt of a former driver committed a lane here.
    stale = {lane: last for lane in to_finish if (last := lasts[lane]) is not None and last.lanes != lanes}
    anchors = AnchorsToWrite(next(iter(stale.values())), tuple(sorted(stale, reverse=True))) if stale else None
    return Reconciliation(Resume.IN_DOUBT_BEGUN, here.batch, to_finish=to_finish, anchors=anchors)


def _clean(ledger: Sequence[LedgerRecord | None], here: BatchToWrite) -> Reconciliation:
    # Lane 0 always exists, so its last record has the last number of lanes. Other lanes may be left over from a higher number.
    first = _lane(ledger, 0)
    lanes_before = first.lanes if first is not None else here.sink.lanes
    before = here.divided_into(lanes_before)
    for lane in range(lanes_before):
        last = _lane(ledger, lane)
        try:
            held = decide(_ignoring_lanes_of_anchor(last, lanes_before), lane, before).action is Action.SKIP
        except LedgerAhead:
            assert last is not None  # noqa: S101 - a ledger that is ahead has a record
            raise ledger_ahead(last, lane, replace(before, batch=before.batch + 1)) from None
        if not held:
            found = f"ends with batch {last.batch} of query {last.query_id}" if last else "holds no record at all"
            raise ledger_lost(lane, before, found)
    anchors = _anchors(ledger, here.sink.lanes)
    change = _change(first, anchors, here.sink.lanes)
    return Reconciliation(Resume.CLEAN, here.batch, anchors=anchors, lanes_changed=change)


def _ignoring_lanes_of_anchor(last: LedgerRecord | None, lanes: int) -> LedgerRecord | None:
    """The anchor of an interrupted change of lanes counts as a record of its batch, whatever its number of lanes."""
    return replace(last, lanes=lanes) if last is not None and last.kind == ANCHOR else last


def _anchors(ledger: Sequence[LedgerRecord | None], lanes: int) -> AnchorsToWrite | None:
    """Anchors at the batch of lane 0 for the lanes whose records have another number of lanes; None if no lane needs one.

    A lane that the stream no longer has is anchored too, so that an attempt of a former driver does not write to it.
    """
    at = _lane(ledger, 0)
    if at is None:
        return None
    same_batch = {
        n: r for n, r in enumerate(ledger) if r is not None and (r.query_id, r.batch) == (at.query_id, at.batch)
    }
    up_to_date = {lane for lane, last in same_batch.items() if last.lanes == lanes}
    if up_to_date.issuperset(range(lanes)):
        return None
    return AnchorsToWrite(at, tuple(sorted({*range(lanes), *same_batch} - up_to_date, reverse=True)))


def _change(first: LedgerRecord | None, anchors: AnchorsToWrite | None, lanes: int) -> tuple[int, int] | None:
    return (first.lanes, lanes) if first is not None and anchors is not None else None


def _fresh(ledger: Sequence[LedgerRecord | None], sink: SinkIdentity, *, adopt_ledger: bool) -> Reconciliation:
    known = {lane: last for lane, last in enumerate(ledger) if last is not None}
    if not known:
        if adopt_ledger:
            raise LedgerLost(
                f"The ledger {ledger_topic(sink.sink_id)} holds no record to start from.",
                "So it is unknown what is in the sink already: a start elsewhere might double or lose records.",
                'correct the sink_id; or, if the sink is empty, choose another start, e.g. `start="earliest"`.',
            )
        return Reconciliation(Resume.FRESH)
    # Lane 0 always exists, so its last record is of the newest batch or of the batch before it.
    newest = known.get(0, next(iter(known.values())))
    if not adopt_ledger:
        raise foreign_ledger(newest, sink.sink_id, None)
    end = (newest.query_id, newest.batch)
    if any(lane not in known or (known[lane].query_id, known[lane].batch) != end for lane in range(newest.lanes)):
        held = (
            f"lane {n} {f'ends with batch {known[n].batch} of query {known[n].query_id}' if n in known else 'is empty'}"
            for n in range(newest.lanes)
        )
        raise LedgerLost(
            f"The last batch in the ledger {ledger_topic(sink.sink_id)} is unfinished: {', '.join(held)}.",
            "A new checkpoint that starts after it would lose the records of the lanes that are not written.",
            "put the checkpoint back, which finishes the batch.",
        )
    if newest.topic_id != sink.topic_id:
        raise sink_recreated(
            newest,
            sink,
            "go back to the former topic, or start over on purpose with "
            f"`airflow-ckpt ledger reset {sink.sink_id}` and another start.",
        )
    if newest.lanes != sink.lanes:
        raise LanesChanged(
            f"The ledger was written with {newest.lanes} lane(s), the stream now has {sink.lanes}.",
            "The new lanes have no ledger record to continue from.",
            f"set lanes={newest.lanes} for the start from the ledger; change it at a later clean stop.",
        )
    return Reconciliation(
        Resume.ADOPTED,
        anchors=_anchors(ledger, newest.lanes),
        adopt=Adoption(newest.query_id, newest.batch),
    )


def _lane(ledger: Sequence[LedgerRecord | None], lane: int) -> LedgerRecord | None:
    return ledger[lane] if lane < len(ledger) else None
