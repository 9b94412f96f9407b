"""The batches of a ledger that several queries wrote, and that has forgotten some."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from airflow_ckpt.kafka.offsets import Ends
from airflow_ckpt.verify.batches import Batch, batches_of, queries_of
from airflow_ckpt.verify.cut import Range, take_cut
from airflow_ckpt.verify.ledger_check import check_batches
from ckpt_stream.decision import Adoption
from ckpt_stream.ledger import ANCHOR, LedgerRecord
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

Lane = list[LedgerRecord]


def lane(lane: int, *eras: tuple[str, Iterable[int]], lanes: int = 2) -> Lane:
    return [held(batch, lane, lanes, query_id=query) for query, numbers in eras for batch in numbers]


def names(batches: list[Batch]) -> list[str]:
    """As `q3`, with a stroke before what follows on something forgotten."""
    return [f"{'|' if b.cut_off else ''}{b.query}{b.number}" for b in batches]


def test_batches_come_in_the_order_in_which_the_queries_wrote() -> None:
    lanes = [lane(0, ("b", [0, 1]), ("a", [0, 1])), lane(1, ("b", [0, 1]), ("a", [0, 1]))]
    assert names(batches_of(lanes)) == ["b0", "b1", "a0", "a1"]
    assert [b.shared for b in batches_of(lanes)] == [True] * 4
    assert names(batches_of([lane(0, ("b", [0]), lanes=1)])) == ["b0"]


def test_the_order_is_put_together_from_lanes_that_do_not_know_all_queries() -> None:
    assert queries_of([lane(0, ("b", [0]), ("a", [0])), lane(1, ("c", [0]), ("b", [0])), []]) == ["c", "b", "a"]
    assert set(queries_of([lane(0, ("b", [0]), ("a", [0])), lane(1, ("a", [0]), ("b", [0]))])) == {"a", "b"}


def test_an_anchor_is_no_batch() -> None:
    anchor = held(7, query_id="c", kind=ANCHOR)
    assert names(batches_of([[*lane(0, ("a", [0]), lanes=1), anchor]])) == ["a0"]


@pytest.mark.parametrize("lanes", [1, 2])
def test_the_oldest_batches_of_a_ledger_are_forgotten(lanes: int) -> None:
    written = [lane(n, ("a", [5, 6, 7]), lanes=lanes) for n in range(lanes)]
    assert names(batches_of(written)) == ["|a5", "a6", "a7"]


def test_a_lane_that_is_ahead_has_forgotten_more_and_nothing_is_torn() -> None:
    """It deletes its oldest record in the transaction in which it writes the newest."""
    ahead, behind = lane(0, ("a", [6, 7, 8])), lane(1, ("a", [5, 6, 7]))
    batches = batches_of([ahead, behind])
    assert names(batches) == ["|a6", "a7", "a8"]
    assert not list(check_batches(batches[:-1]))
    whole = batches_of([lane(0, ("a", [1, 2])), lane(1, ("a", [0, 1, 2]))])
    assert [f.kind for f in check_batches(whole)] == ["torn_batch"], "no batch is under way"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (range(3, 5), range(5), ["|a3", "a4", "b0", "b1", "b2", "b3", "b4"]),
        ([], range(3), ["b0", "b1", "b2"]),
        ([0, 2, 3], range(3), ["a0", "|a2", "a3", "b0", "b1", "b2"]),
        ([90, 91], range(7, 9), ["|a90", "a91", "|b7", "b8"]),
    ],
)
def test_a_query_replaces_the_records_of_the_one_before(
    first: Iterable[int], second: Iterable[int], expected: list[str]
) -> None:
    assert names(batches_of([lane(n, ("a", first), ("b", second)) for n in range(2)])) == expected


def test_what_no_later_query_can_have_replaced_is_missed() -> None:
    batches = batches_of([lane(n, ("a", [0, 1, 3]), ("b", [0, 1])) for n in range(2)])
    assert names(batches) == ["a0", "a1", "a3", "b0", "b1"]
    found = [(f.kind, f.query, f.batch) for f in check_batches(batches)]
    assert found[0] == ("ledger_gap", "a", 2)


@pytest.mark.parametrize(
    ("adopted", "expected", "found"),
    [
        (Adoption("a", 2), ["a0", "a1", "a2", "c0"], ["source_overlap"]),
        (Adoption("b", 0), ["a0", "a1", "a2", "|c0"], []),
        (Adoption("a", 0), ["a0", "a1", "a2", "c0"], ["foreign_ledger"]),
        (Adoption("a", 5), ["a0", "a1", "a2", "c0"], ["ledger_gap"]),
    ],
)
def test_a_query_follows_what_it_took_over(adopted: Adoption, expected: list[str], found: list[str]) -> None:
    batches = batches_of([lane(0, ("a", range(3)), ("c", [0]), lanes=1)], {"c": adopted})
    assert names(batches) == expected
    assert [f.kind for f in check_batches(batches)] == found


def test_a_cut_leaves_out_what_lies_before_something_forgotten() -> None:
    batches = batches_of([lane(0, ("a", [90, 91]), ("b", [7, 8]), lanes=1)])
    ends = Ends({0: 0}, {0: 9}, {0: 9})

    def cut(wanted: Range) -> list[str]:
        taken, _, _ = take_cut(lambda: batches, lambda: ends, "sink", wanted, settle_seconds=0)
        return names(list(taken.batches))

    assert cut(Range()) == ["|b7", "b8"]
    assert cut(Range(after=90, query="a")) == ["|b7", "b8"]
    assert cut(Range(after=7)) == ["b8"]
    assert cut(Range(until=6)) == [], "where batch 91 ended is forgotten"


def test_batches_that_know_nothing_of_a_topic_have_no_place_in_it() -> None:
    """The first two wrote dead letters to another topic, and the last none."""
    starts = [None, None, 10, 20, None]
    records = [held(n, sink_start={} if at is None else {"dead": {"0": at}}) for n, at in enumerate(starts)]
    ends = Ends({0: 0}, {0: 30}, {0: 30})
    cut, _, _ = take_cut(lambda: batches_of([records]), lambda: ends, "dead", settle_seconds=0)
    assert cut.boundaries.offsets == {0: [10, 10, 10, 20, 30]}
    assert [cut.boundaries.turn(0, offset)[0] for offset in (10, 19, 20, 29)] == [2, 2, 3, 3]


@pytest.mark.parametrize(("stable", "left"), [(30, 3), (29, 2), (20, 2), (19, 1), (0, 0)])
def test_a_cut_leaves_out_every_batch_of_which_readers_do_not_see_the_end_yet(stable: int, left: int) -> None:
    """The marker of a batch may be late in the sink although the ledger has its record, and that of the next."""
    records = [held(n, sink_start={"sink": {"0": n * 10}}) for n in range(4)]
    ends = Ends({0: 0}, {0: stable}, {0: 40})
    cut, _, _ = take_cut(lambda: batches_of([records]), lambda: ends, "sink", settle_seconds=0)
    assert len(cut.batches) == left
    assert cut.left_out == 3
