"""The ledger against itself: what is missing or doubled is found, and what was forgotten or taken over is not called missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from airflow_ckpt.verify.checks.ledger_check import check_batches, check_group, check_lanes, source_span
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.protocol.ledger.ledger_batches import batches_of
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit


def kinds(findings: Iterable[Finding]) -> list[tuple[str, int | None, bool]]:
    """The kind of each finding, its batch, and whether it is a violation."""
    return [(f.kind, f.batch, f.violation) for f in findings]


def of(query: str, batch: int, **changes: Any) -> LedgerRecord:
    return held(batch, query_id=query, **changes)


def anchor(batch: int) -> LedgerRecord:
    return held(batch, kind=ANCHOR)


# --- one lane ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "records",
    [
        [held(0), held(1), held(2)],
        [of("q1", 0), of("q1", 1), of("q2", 0), of("q2", 1)],
        [held(0), anchor(0), held(1)],
        [anchor(1), held(1), held(2)],
        [held(0), held(2)],
        [],
    ],
    ids=["in order", "taken over", "anchor behind its batch", "anchor before its batch", "a gap", "nothing"],
)
def test_a_lane_whose_batches_follow_each_other_has_no_finding(records: list[LedgerRecord]) -> None:
    """Whether batches are missing is not asked of a single lane."""
    assert list(check_lanes([records])) == []


@pytest.mark.parametrize(
    ("records", "kind", "batch"),
    [
        ([held(0), held(1), held(1)], "ledger_repeat", 1),
        ([held(0), held(2), held(1)], "ledger_order", 1),
        ([of("q1", 0), of("q2", 0), of("q1", 1)], "foreign_ledger", 1),
        ([of("q1", 5), of("q2", 0), of("q1", 5)], "foreign_ledger", 5),
    ],
)
def test_a_lane_that_was_written_twice_or_by_two_is_a_violation(
    records: list[LedgerRecord], kind: str, batch: int
) -> None:
    findings = list(check_lanes([[], records]))
    assert kinds(findings) == [(kind, batch, True)]
    assert findings[0].lane == 1


# --- batch after batch -------------------------------------------------------------------------------------------------


def found(*lanes: list[LedgerRecord]) -> list[tuple[str, int | None, bool]]:
    return kinds(check_batches(batches_of(lanes)))


def test_batches_that_touch_have_no_finding() -> None:
    assert found([held(0), held(1), held(2)]) == []


def test_a_batch_without_one_of_its_lanes_is_torn_when_a_later_one_is_there() -> None:
    lanes = [[held(n, lane, 2) for n in range(3) if (n, lane) != (1, 1)] for lane in range(2)]
    assert found(*lanes) == [("torn_batch", 1, True)]


def test_lanes_of_different_input_are_a_violation_and_of_different_formats_unknown() -> None:
    assert found([held(0, 0, 2)], [held(0, 1, 2, digest="another")]) == [("mixed_input", 0, True)]
    assert found([held(0, 0, 2)], [held(0, 1, 2, format=1)]) == [("mixed_format", 0, False)]


def test_a_batch_that_is_not_there_is_a_gap() -> None:
    assert found([held(0), held(3), held(4)]) == [("ledger_gap", 1, True)]


def test_a_batch_whose_record_a_later_query_may_have_replaced_is_no_gap() -> None:
    """Both count from 0, so their records have the same keys, and compaction keeps the newest of each."""
    later = [of("q2", n, start={"source": {"0": 50 + 10 * n}}, end={"source": {"0": 60 + 10 * n}}) for n in range(3)]
    taken = {"query_id": "q1", "batch": 4}
    first = of("q2", 0, start=later[0].start, end=later[0].end, adopted=taken)
    assert found([of("q1", 0), of("q1", 3), of("q1", 4), first, *later[1:]]) == []


@pytest.mark.parametrize(("start", "end", "kind"), [(13, 20, "source_gap"), (7, 20, "source_overlap"), (10, 20, None)])
def test_the_source_ranges_of_two_batches_touch_exactly(start: int, end: int, kind: str | None) -> None:
    moved = held(1, start={"source": {"0": start}}, end={"source": {"0": end}})
    findings = list(check_batches(batches_of([[held(0), moved]])))
    assert kinds(findings) == ([(kind, 1, True)] if kind else [])
    assert [f.records for f in findings] == ([3] if kind else [])


def test_a_partition_that_is_new_begins_wherever_it_begins() -> None:
    wider = held(1, start={"source": {"0": 10, "1": 500}}, end={"source": {"0": 20, "1": 510}})
    assert found([held(0), wider]) == []
    assert source_span(batches_of([[held(0), wider]])) == 30


@pytest.mark.parametrize(
    ("adopted", "start", "expected"),
    [
        ({"query_id": "q1", "batch": 2}, 30, []),
        # It goes on before the end of the query that it took over, so that batch 2 is there twice.
        ({"query_id": "q1", "batch": 1}, 20, [("foreign_ledger", 0, True)]),
        # Between the two, batches are missing that it has known.
        ({"query_id": "q1", "batch": 5}, 60, [("ledger_gap", 3, True)]),
        # Of the query between nothing is left: that is forgotten, and what it read is unknown.
        ({"query_id": "between", "batch": 4}, 60, []),
        # What it took over is known, and it begins somewhere else.
        ({"query_id": "q1", "batch": 2}, 35, [("source_gap", 0, True)]),
        (None, 30, []),
        (None, 35, [("unknown_takeover", 0, False)]),
        (None, 25, [("source_overlap", 0, True)]),
    ],
)
def test_a_query_that_took_the_ledger_over_goes_on_where_that_ends(
    adopted: dict[str, Any] | None, start: int, expected: list[tuple[str, int | None, bool]]
) -> None:
    first = of("q2", 0, start={"source": {"0": start}}, end={"source": {"0": start + 10}}, adopted=adopted)
    assert found([*(of("q1", n) for n in range(3)), first]) == expected


# --- the group ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mirrored", "violated"), [(5, False), (20, False), (21, True)])
def test_the_group_is_never_ahead_of_the_ledger(mirrored: int, violated: bool) -> None:
    (*_, newest) = batches_of([[held(0), held(1)]])
    findings = list(check_group({"source": {"0": mirrored}, "another": {"0": 999}}, newest))
    assert kinds(findings) == ([("group_ahead", 1, True)] if violated else [])
