"""Every row of the table of decisions, and every verdict at the start of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ckpt_stream.decision import (
    Action,
    Adoption,
    Anchors,
    CheckpointEnd,
    Decision,
    Intent,
    Reconciliation,
    decide,
    reconcile,
)
from ckpt_stream.errors import (
    ForeignLedger,
    LanesChanged,
    LedgerAhead,
    LedgerLost,
    OtherInput,
    Refused,
    SinkRecreated,
)
from ckpt_stream.ledger import ANCHOR, LedgerRecord
from tests.ckpt_stream.samples import QUERY, about_to_write, checkpoint_at, held

pytestmark = pytest.mark.unit

PRODUCE = Decision(Action.PRODUCE)
ADOPTED = Adoption("query-0", 7)


def test_the_first_batch_is_written_into_an_empty_ledger() -> None:
    assert decide(None, 0, about_to_write(0)) == PRODUCE


@pytest.mark.parametrize("kind", ["batch", ANCHOR])
def test_a_batch_is_written_after_its_predecessor(kind: str) -> None:
    assert decide(held(4, kind=kind), 0, about_to_write(5)) == PRODUCE


def test_a_batch_in_the_ledger_is_skipped_and_must_add_up_to_its_record() -> None:
    last = held(5)
    assert decide(last, 0, about_to_write(5)) == Decision(Action.SKIP, last)


def test_the_first_batch_is_skipped_when_it_is_in_the_ledger() -> None:
    assert decide(held(0), 0, about_to_write(0)).action is Action.SKIP


def test_an_anchored_batch_is_skipped_without_sums_to_compare() -> None:
    assert decide(held(5, kind=ANCHOR, records=0), 0, about_to_write(5)) == Decision(Action.SKIP, None)


def test_the_first_batch_is_written_after_exactly_the_adopted_record() -> None:
    last = held(7, query_id="query-0")
    assert decide(last, 0, about_to_write(0, adopted=ADOPTED)) == PRODUCE


def test_an_adopted_ledger_is_skipped_like_any_other_once_the_batch_is_in_it() -> None:
    last = held(0)
    assert decide(last, 0, about_to_write(0, adopted=ADOPTED)) == Decision(Action.SKIP, last)


#: ledger, intent, refusal, words of: what was found, what would be lost or doubled, what helps.
REFUSALS: dict[str, tuple[LedgerRecord | None, Intent, type[Refused], Sequence[str], str, str]] = {
    "the ledger is ahead": (
        held(8),
        about_to_write(5),
        LedgerAhead,
        ("batch 5", "lane 2", "orders.ledger", "batch 8"),
        "batches 5 to 8 would be in the sink twice",
        'start="ledger"',
    ),
    "the ledger is ahead by one": (
        held(6),
        about_to_write(5),
        LedgerAhead,
        ("batch 5", "batch 6"),
        "batches 5 to 6 would be in the sink twice",
        "newest checkpoint",
    ),
    "the batch has other input": (
        held(5, digest="input-other"),
        about_to_write(5),
        OtherInput,
        ("batch 5", "Lane 2", "input-other", "input-5", "{'source': {'0': 60}}"),
        "lose records",
        'start="ledger"',
    ),
    "the ledger is empty": (
        None,
        about_to_write(5),
        LedgerLost,
        ("Lane 2", "orders.ledger", "no record at all", "batch 5"),
        "double its records",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the ledger has a gap": (
        held(3),
        about_to_write(5),
        LedgerLost,
        ("Lane 2", "ends with batch 3", "batch 5"),
        "whether batch 5 is in the sink already",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the ledger is another query's": (
        held(4, query_id="query-0"),
        about_to_write(5),
        ForeignLedger,
        ("orders.ledger", "batch 4", "query-0", QUERY),
        "written twice",
        "airflow-ckpt ledger reset orders",
    ),
    "the lanes changed after the predecessor": (
        held(4, lanes=3),
        about_to_write(5, lanes=2),
        LanesChanged,
        ("Batch 4", "lane 2", "3 lane(s)", "2"),
        "lost or doubled",
        "lanes=3",
    ),
    "the lanes changed within the batch": (
        held(5, lanes=1),
        about_to_write(5, lanes=3),
        LanesChanged,
        ("Batch 5", "1 lane(s)", "3"),
        "Batch 5 is in doubt",
        "lanes=1; when batch 5 is committed",
    ),
    "the sink was made again": (
        held(4, topic_id="topic-0"),
        about_to_write(5),
        SinkRecreated,
        ("'orders-out'", "topic-1", "batch 4", "topic-0"),
        "would be missing",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the sink was made again and the batch counts as written": (
        held(5, topic_id="topic-0"),
        about_to_write(5),
        SinkRecreated,
        ("batch 5",),
        "would be missing",
        "former topic",
    ),
    "the adopted ledger is gone": (
        None,
        about_to_write(0, adopted=ADOPTED),
        LedgerLost,
        ("no record at all", "batch 0"),
        "double its records",
        "rebuild",
    ),
    "the adopted ledger went on": (
        held(8, query_id="query-0"),
        about_to_write(0, adopted=ADOPTED),
        ForeignLedger,
        ("batch 8", "query-0"),
        "written twice",
        "sink_id of its own",
    ),
    "the ledger is not the adopted query's": (
        held(7, query_id="query-x"),
        about_to_write(0, adopted=ADOPTED),
        ForeignLedger,
        ("batch 7", "query-x"),
        "written twice",
        "sink_id of its own",
    ),
    "nothing was adopted": (
        held(7, query_id="query-0"),
        about_to_write(0),
        ForeignLedger,
        ("batch 7", "query-0"),
        "written twice",
        'start="ledger"',
    ),
    "the ledger still ends where it was adopted": (
        held(7, query_id="query-0"),
        about_to_write(1, adopted=ADOPTED),
        LedgerLost,
        ("batch 7 of the adopted query query-0", "the checkpoint is at batch 1"),
        "double its records",
        "airflow-ckpt ledger rebuild orders",
    ),
    "the lanes changed after the adoption": (
        held(7, query_id="query-0", lanes=3),
        about_to_write(0, lanes=1, adopted=ADOPTED),
        LanesChanged,
        ("3 lane(s)",),
        "lost or doubled",
        "lanes=3",
    ),
    "the sink was made again after the adoption": (
        held(7, query_id="query-0", topic_id="topic-0"),
        about_to_write(0, adopted=ADOPTED),
        SinkRecreated,
        ("topic-0",),
        "would be missing",
        "rebuild",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_anything_else_is_refused_with_what_was_found_what_is_at_risk_and_what_helps(case: str) -> None:
    last, intent, error, found, risk, helps = REFUSALS[case]
    with pytest.raises(Refused) as refusal:
        decide(last, 2, intent)
    assert type(refusal.value) is error
    for word in found:
        assert word in refusal.value.found
    assert risk in refusal.value.risk
    assert helps in refusal.value.helps
    assert str(refusal.value) == f"{refusal.value.found} {refusal.value.risk} What helps: {refusal.value.helps}"
    assert refusal.value.restart_may_help is False


# The start of a run


def start(
    checkpoint: CheckpointEnd, *ledger: LedgerRecord | None, lanes: int = 1, adopt: bool = False, **changes: Any
) -> Reconciliation:
    """Reconcile as the driver does: it knows its lanes and sink, not yet its query and batch."""
    intent = about_to_write(0, lanes, **{"query_id": "", "digest": "", **changes})
    return reconcile(checkpoint, ledger, intent, adopt_ledger=adopt)


def refusal_of(error: type[Refused], *args: Any, **kwargs: Any) -> Refused:
    with pytest.raises(error) as refusal:
        start(*args, **kwargs)
    return refusal.value


EMPTY = checkpoint_at(None, None, None)


@pytest.mark.parametrize("ledger", [(), (None,), (None, None, None)])
def test_an_empty_checkpoint_and_an_empty_ledger_are_a_fresh_start(ledger: tuple[None, ...]) -> None:
    assert start(EMPTY, *ledger) == Reconciliation("fresh start")


def test_a_fresh_start_on_a_used_ledger_is_refused_although_the_checkpoint_has_no_query_yet() -> None:
    refused = refusal_of(ForeignLedger, EMPTY, held(7))
    assert "batch 7" in refused.found
    assert "the checkpoint holds no batch yet" in refused.found
    assert 'start="ledger"' in refused.helps
    assert "airflow-ckpt ledger reset orders" in refused.helps


def test_a_complete_ledger_is_adopted() -> None:
    verdict = start(EMPTY, *(held(7, lane, 3) for lane in range(3)), lanes=3, adopt=True)
    assert verdict == Reconciliation("adopting the ledger after batch 7 of query query-1", adopt=Adoption(QUERY, 7))


def test_lanes_left_over_from_a_wider_ledger_do_not_hinder_its_adoption_even_if_their_clock_was_ahead() -> None:
    later = "2026-12-31T00:00:00.000+00:00"
    ledger = held(9), held(7, 1, 3, time=later), held(7, 2, 3, time=later, query_id="query-0")
    assert start(EMPTY, *ledger, adopt=True).adopt == Adoption(QUERY, 9)


@pytest.mark.parametrize(
    "ledger",
    [
        (held(7, 0, 2), held(6, 1, 2)),
        (held(6, 0, 2), held(7, 1, 2)),
        (held(7, 0, 2), None),
        (None, held(0, 1, 2)),
        (held(7, 0, 2),),
        (held(7, 0, 2, query_id="query-0"), held(0, 1, 2)),
    ],
)
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_ledger_with_an_unfinished_batch_is_not_adopted(ledger: Sequence[LedgerRecord | None], lanes: int) -> None:
    refused = refusal_of(LedgerLost, EMPTY, *ledger, lanes=lanes, adopt=True)
    for lane, last in enumerate(ledger):
        assert (f"lane {lane} ends with batch {last.batch}" if last else f"lane {lane} is empty") in refused.found
    assert "would lose" in refused.risk
    assert "put the checkpoint back" in refused.helps


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_a_ledger_is_adopted_with_its_own_number_of_lanes_only(before: int, after: int) -> None:
    ledger = [held(7, lane, before) for lane in range(before)]
    refused = refusal_of(LanesChanged, EMPTY, *ledger, lanes=after, adopt=True)
    assert f"{before} lane(s), the stream now has {after}" in refused.found
    assert f"lanes={before}" in refused.helps


def test_a_ledger_that_speaks_of_another_sink_is_not_adopted() -> None:
    refused = refusal_of(SinkRecreated, EMPTY, held(7, topic_id="topic-0"), adopt=True)
    assert "topic-0" in refused.found
    assert "ledger reset orders" in refused.helps


@pytest.mark.parametrize("ledger", [(), (None, None)])
def test_an_empty_ledger_is_not_adopted_and_the_message_names_another_start(ledger: tuple[None, ...]) -> None:
    refused = refusal_of(LedgerLost, EMPTY, *ledger, adopt=True)
    assert "orders.ledger holds no record to start from" in refused.found
    assert "sink_id" in refused.helps
    assert 'start="earliest"' in refused.helps


def test_a_wish_to_adopt_means_nothing_to_a_checkpoint_that_has_batches() -> None:
    assert start(checkpoint_at(5, 5), held(5), adopt=True) == Reconciliation("clean resume after batch 5")


@pytest.mark.parametrize("batch", [0, 5])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_committed_batch_that_the_ledger_holds_is_a_clean_resume(batch: int, lanes: int) -> None:
    ledger = [held(batch, lane, lanes) for lane in range(lanes)]
    assert start(checkpoint_at(batch, batch), *ledger, lanes=lanes) == Reconciliation(
        f"clean resume after batch {batch}"
    )


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_lanes_may_change_at_a_clean_stop_and_are_anchored_there(before: int, after: int) -> None:
    ledger = [held(5, lane, before) for lane in range(before)]
    verdict = start(checkpoint_at(5, 5), *ledger, lanes=after)
    anchors = Anchors(ledger[0], tuple(reversed(range(max(before, after)))))
    assert verdict == Reconciliation(f"clean resume after batch 5, lanes {before} -> {after}", anchors=anchors)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_after_the_anchors_of_a_narrower_stream_the_lanes_left_over_at_the_same_batch_do_not_count(lanes: int) -> None:
    ledger = held(5, 0, 1, kind=ANCHOR), held(5, 1, 3), held(5, 2, 3)
    verdict = start(checkpoint_at(5, 5), *ledger, lanes=lanes)
    assert verdict.anchors == {1: None, 2: Anchors(ledger[0], (2, 1, 0)), 3: Anchors(ledger[0], (0,))}[lanes]


def test_lanes_left_over_from_earlier_do_not_count_when_the_stream_is_widened_again() -> None:
    verdict = start(checkpoint_at(8, 8), held(8), held(5, 1, 3), held(5, 2, 3, query_id="query-0"), lanes=3)
    assert verdict == Reconciliation("clean resume after batch 8, lanes 1 -> 3", anchors=Anchors(held(8), (2, 1, 0)))


@pytest.mark.parametrize(
    ("done", "line", "to_finish"),
    [
        ((), "batch 5 in doubt: all lanes to finish", (0, 1, 2)),
        ((1,), "batch 5 in doubt: lanes 0, 2 to finish", (0, 2)),
        ((0, 2), "batch 5 in doubt: lanes 1 to finish", (1,)),
        ((0, 1, 2), "batch 5 in doubt: every lane is in the sink already", ()),
    ],
)
def test_a_batch_in_doubt_names_the_lanes_to_finish(done: Sequence[int], line: str, to_finish: tuple[int, ...]) -> None:
    ledger = [held(5 if lane in done else 4, lane, 3) for lane in range(3)]
    assert start(checkpoint_at(5, 4), *ledger, lanes=3) == Reconciliation(line, to_finish)


def test_the_first_batch_in_doubt_names_the_lanes_to_finish() -> None:
    verdict = start(checkpoint_at(0, None), None, held(0, 1, 2), lanes=2)
    assert verdict == Reconciliation("batch 0 in doubt: lanes 0 to finish", (0,))


def test_the_first_batch_after_an_adoption_is_finished_from_the_adopted_record() -> None:
    ledger = held(7, 0, 2, query_id="query-0"), held(0, 1, 2)
    verdict = start(checkpoint_at(0, None), *ledger, lanes=2, adopted=ADOPTED)
    assert verdict.to_finish == (0,)


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_other_lanes_are_refused_while_a_batch_is_in_doubt(lanes: int) -> None:
    ledger = held(5, 0, 3), held(4, 1, 3), held(4, 2, 3)
    refused = refusal_of(LanesChanged, checkpoint_at(5, 4), *ledger, lanes=lanes)
    assert "Batch 5 is in doubt" in refused.risk
    assert "lanes=3" in refused.helps


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("ledger", [
    (None, None, held(0, 2, 3, kind=ANCHOR)),
    (None, held(0, 1, 3, kind=ANCHOR), held(0, 2, 3, kind=ANCHOR)),
])  # fmt: skip
def test_an_interrupted_rebuild_of_the_first_batch_is_to_be_finished(
    ledger: Sequence[LedgerRecord | None], lanes: int
) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(0, None), *ledger, lanes=lanes)
    assert "--in-doubt done" in refused.helps


@pytest.mark.parametrize("before", [held(4, 0, 2), held(2, 0, 2), None])
def test_an_interrupted_rebuild_of_a_later_batch_is_to_be_finished(before: LedgerRecord | None) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, 4), before, held(5, 1, 2, kind=ANCHOR), lanes=2)
    assert "--in-doubt done" in refused.helps


def test_a_rebuild_that_was_finished_counts_for_every_lane() -> None:
    ledger = held(5, 0, 2, kind=ANCHOR), held(5, 1, 2, kind=ANCHOR)
    assert start(checkpoint_at(5, 4), *ledger, lanes=2).to_finish == ()


@pytest.mark.parametrize("lanes", [1, 2])
def test_fewer_lanes_are_refused_when_only_lanes_beyond_them_hold_the_first_batch(lanes: int) -> None:
    refused = refusal_of(LanesChanged, checkpoint_at(0, None), None, None, held(0, 2, 3), lanes=lanes)
    assert "3 lane(s)" in refused.found
    assert "lanes=3" in refused.helps


def test_a_foreign_record_beyond_the_lanes_of_the_first_batch_is_refused() -> None:
    refusal_of(ForeignLedger, checkpoint_at(0, None), None, held(3, 1, 2, query_id="query-0"))


def test_the_lanes_of_a_first_batch_of_which_nothing_is_written_may_change() -> None:
    assert start(checkpoint_at(0, None), None, None, None, lanes=2).to_finish == (0, 1)


@pytest.mark.parametrize(("partitions", "lanes"), [(3, 2), (2, 3), (1, 2), (2, 1), (2, 2)])
def test_an_attempt_at_the_first_batch_with_other_lanes_finds_an_anchor_in_its_way(partitions: int, lanes: int) -> None:
    verdict = start(checkpoint_at(0, None), *[None] * partitions, lanes=lanes)
    assert verdict.anchors is not None
    assert verdict.anchors.lanes == tuple(reversed(range(max(partitions, lanes))))
    anchors = [replace(verdict.anchors.at, lane=lane) for lane in range(max(partitions, lanes))]
    for anchor in anchors:
        with pytest.raises(LanesChanged):
            decide(anchor, anchor.lane, about_to_write(0, lanes + 1))
        assert decide(anchor, anchor.lane, about_to_write(0, lanes)).action is Action.PRODUCE
    assert start(checkpoint_at(0, None), *anchors, lanes=lanes).anchors is None
    again = start(checkpoint_at(0, None), None, *anchors[1:], lanes=lanes + 1)
    assert again.anchors is not None
    assert again.anchors.at.lanes == lanes + 1


def test_the_first_batch_of_one_lane_needs_no_anchor() -> None:
    assert start(checkpoint_at(0, None), None).anchors is None


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (3, 2)])
def test_a_batch_in_doubt_of_which_nothing_is_written_is_divided_anew_once_every_lane_knows(
    before: int, after: int
) -> None:
    ledger = [held(4, lane, before) for lane in range(before)]
    verdict = start(checkpoint_at(5, 4), *ledger, lanes=after)
    # Also the lanes that are no more: an attempt of the former driver must not find that batch 5 is next in its lane.
    anchors = Anchors(ledger[0], tuple(reversed(range(max(before, after)))))
    line = f"batch 5 in doubt: all lanes to finish, lanes {before} -> {after}"
    assert verdict == Reconciliation(line, tuple(range(after)), anchors)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_the_first_batch_after_an_adoption_is_divided_anew_as_well(lanes: int) -> None:
    ledger = [held(7, lane, 2, query_id="query-0") for lane in range(2)]
    verdict = start(checkpoint_at(0, None), *ledger, lanes=lanes, adopted=ADOPTED)
    assert verdict.to_finish == tuple(range(lanes))
    assert verdict.anchors == (None if lanes == 2 else Anchors(ledger[0], tuple(reversed(range(max(2, lanes))))))


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("committed", [4, 5])
def test_a_change_of_lanes_that_was_interrupted_may_be_finished_or_undone(committed: int, lanes: int) -> None:
    at = committed
    ledger = held(at, 0, 3), held(at, 1, 2, kind=ANCHOR), held(at, 2, 2, kind=ANCHOR)
    anchors = start(checkpoint_at(5, committed), *ledger, lanes=lanes).anchors
    told = {1: (2, 1, 0), 2: (0,), 3: (2, 1)}[lanes]
    assert anchors == Anchors(ledger[0], told)


def test_an_interrupted_change_is_undone_when_a_late_attempt_has_written_the_first_lane() -> None:
    ledger = held(5, 0, 3), held(4, 1, 2, kind=ANCHOR), held(4, 2, 2, kind=ANCHOR)
    refusal_of(LanesChanged, checkpoint_at(5, 4), *ledger, lanes=2)
    verdict = start(checkpoint_at(5, 4), *ledger, lanes=3)
    assert (verdict.to_finish, verdict.anchors) == ((1, 2), Anchors(ledger[1], (2, 1)))


def test_an_interrupted_change_is_finished_when_the_ledger_is_adopted() -> None:
    ledger = held(7, 0, 2), held(7, 1, 3, kind=ANCHOR)
    verdict = start(EMPTY, *ledger, lanes=2, adopt=True)
    assert (verdict.adopt, verdict.anchors) == (Adoption(QUERY, 7), Anchors(ledger[0], (1,)))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_a_lane_of_the_former_division_that_lacks_the_batch_before_is_refused_with_any_number_of_lanes(
    lanes: int,
) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, 4), held(4, 0, 2), held(3, 1, 2), lanes=lanes)
    assert "Lane 1" in refused.found


def test_a_rolled_back_checkpoint_is_refused_with_the_batch_it_would_write_next() -> None:
    refused = refusal_of(LedgerAhead, checkpoint_at(5, 5), held(8))
    assert "about to write batch 6" in refused.found
    assert "batch 8" in refused.found
    assert "batches 6 to 8 would be in the sink twice" in refused.risk


def test_a_rolled_back_checkpoint_is_refused_if_a_single_lane_is_ahead() -> None:
    refused = refusal_of(LedgerAhead, checkpoint_at(5, 5), held(5, 0, 2), held(6, 1, 2), lanes=2)
    assert "lane 1" in refused.found
    assert "batches 6 to 6" in refused.risk


def test_a_checkpoint_rolled_back_to_a_batch_in_doubt_is_refused() -> None:
    refused = refusal_of(LedgerAhead, checkpoint_at(5, 4), held(8))
    assert "about to write batch 5" in refused.found


def test_a_rolled_back_checkpoint_is_refused_with_other_lanes_too() -> None:
    refusal_of(LedgerAhead, checkpoint_at(5, 5), held(8), lanes=3)


@pytest.mark.parametrize("committed", [4, 5])
def test_a_ledger_without_records_is_refused(committed: int) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, committed), None)
    assert "no record at all, but the checkpoint is at batch 5" in refused.found
    assert "rebuild" in refused.helps


@pytest.mark.parametrize(("newest", "committed"), [(0, None), (0, 0), (5, 4), (5, 5)])
def test_a_ledger_topic_that_is_gone_is_refused_whatever_batch_the_checkpoint_is_at(
    newest: int, committed: int | None
) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(newest, committed))
    assert f"batch {newest}" in refused.found


@pytest.mark.parametrize("batch", [0, 5])
def test_a_committed_batch_that_the_ledger_lacks_is_refused_with_its_own_number(batch: int) -> None:
    last = held(batch - 1) if batch else None
    refused = refusal_of(LedgerLost, checkpoint_at(batch, batch), last)
    assert (f"ends with batch {batch - 1}" if batch else "holds no record at all") in refused.found
    assert f"the checkpoint is at batch {batch}." in refused.found


def test_a_committed_batch_that_a_single_lane_lacks_is_refused() -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, 5), held(5, 0, 2), held(4, 1, 2), lanes=2)
    assert "Lane 1" in refused.found


def test_a_committed_batch_with_other_input_is_refused() -> None:
    refusal_of(OtherInput, checkpoint_at(5, 5), held(5, digest="input-other"))


@pytest.mark.parametrize("committed", [4, 5])
def test_another_query_is_refused_at_the_start(committed: int) -> None:
    refused = refusal_of(ForeignLedger, checkpoint_at(5, committed), held(5, query_id="query-0"))
    assert QUERY in refused.found


@pytest.mark.parametrize("committed", [4, 5])
def test_a_sink_made_again_is_refused_at_the_start(committed: int) -> None:
    refusal_of(SinkRecreated, checkpoint_at(5, committed), held(5), topic_id="topic-2")


@pytest.mark.parametrize(
    ("newest", "committed", "in_doubt"), [(None, None, None), (0, None, 0), (0, 0, None), (5, 4, 5), (5, 5, None)]
)
def test_a_batch_is_in_doubt_if_it_is_planned_and_not_committed(
    newest: int | None, committed: int | None, in_doubt: int | None
) -> None:
    assert checkpoint_at(newest, committed).in_doubt == in_doubt
