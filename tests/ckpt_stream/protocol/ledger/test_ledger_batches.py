"""The batches of a ledger that several queries wrote, and that has forgotten some."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from airflow_ckpt.verify.checks.ledger_check import check_batches
from ckpt_stream.protocol.ledger.ledger_batches import Batch, batches_of, queries_of
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

Lane = list[LedgerRecord]


def lane(lane: int, *queries: tuple[str, Iterable[int]], lanes: int = 2) -> Lane:
    return [held(batch, lane, lanes, query_id=query) for query, numbers in queries for batch in numbers]


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


def test_of_a_batch_that_a_lane_has_written_twice_the_first_record_counts() -> None:
    (batch,) = batches_of([[held(0, records=3), held(0, records=5)]])
    assert batch.records == 3


def test_a_batch_of_which_a_later_query_has_replaced_a_lane_is_forgotten_and_not_torn() -> None:
    """Batch 5 of the later query has the key of the earlier one's; its other lane is not written yet."""
    lanes = [lane(0, ("a", [5, 6]), ("b", range(5))), lane(1, ("a", [6]), ("b", range(6)))]
    assert names(batches_of(lanes))[:2] == ["|a6", "b0"]


def test_nothing_is_forgotten_between_a_query_and_the_one_that_took_over_at_its_end() -> None:
    """Batch 3 of the earlier query is still there, although the later one has a batch 3 as well."""
    first = held(0, query_id="b", adopted={"query_id": "a", "batch": 3})
    written = [*lane(0, ("a", [2, 3]), lanes=1), first, *lane(0, ("b", range(1, 5)), lanes=1)]
    assert names(batches_of([written])) == ["|a2", "a3", "b0", "b1", "b2", "b3", "b4"]


def test_the_ledger_itself_says_what_a_query_has_taken_over_before_any_other_file_does() -> None:
    first = held(0, query_id="c", adopted={"query_id": "a", "batch": 2})
    found = batches_of([[*lane(0, ("a", range(3)), lanes=1), first]], {"c": Adoption("b", 9)})
    assert [batch.adopted for batch in found] == [None, None, None, Adoption("a", 2)]


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
