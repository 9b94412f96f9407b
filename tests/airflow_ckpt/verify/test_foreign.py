"""What the ids of a topic that another program writes show: duplicates, holes, lost and alien records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ckpt.verify.foreign import (
    LISTED,
    check_duplicates,
    check_holes,
    check_without,
    missing_records,
    records_without_source,
)
from airflow_ckpt.verify.scan.record_ids import Ids
from airflow_ckpt.verify.verdict import Finding

pytestmark = pytest.mark.unit


def ids(*found: object, topic: str = "sink", sequence: bool = False, partitions: int = 1) -> Ids:
    """Ids one after the other, dealt out to the partitions; None is a record without one."""
    kept = Ids(topic, sequence=sequence)
    for i, one in enumerate(found):
        kept.add(None if one is None else str(one).encode(), i % partitions, i // partitions)
    return kept


def records(findings: list[Finding]) -> int:
    return sum(f.records or 0 for f in findings)


def test_each_copy_but_the_first_is_a_duplicate_with_its_place() -> None:
    findings = list(check_duplicates(ids("a", "b", "a", "c", "a")))
    assert [(f.kind, f.partition, f.offset) for f in findings] == [("duplicate", 0, 2), ("duplicate", 0, 4)]
    assert all("sink-0 offset 0" in f.what for f in findings)
    assert list(check_duplicates(ids("a", "b", "c"))) == []
    assert list(check_duplicates(ids())) == []


def test_many_faults_are_counted_and_not_all_listed() -> None:
    findings = list(check_duplicates(ids(*["a"] * 100)))
    assert len(findings) == LISTED + 1
    assert records(findings) == 99
    holes = list(check_holes(ids(*range(0, 200, 2), sequence=True)))
    assert (len(holes), records(holes)) == (LISTED + 1, 99)


def test_holes_lie_between_the_least_and_the_largest() -> None:
    assert list(check_holes(ids(5, 3, 4, sequence=True))) == []
    findings = list(check_holes(ids(-2, 9, 3, 1, sequence=True)))
    assert [f.records for f in findings] == [2, 1, 5]
    for finding, numbers in zip(findings, ("-1 to 0", " 2 ", "4 to 8"), strict=True):
        assert numbers in finding.what
    assert records(list(check_holes(ids(-(2**63), 2**63 - 1, sequence=True)))) == 2**64 - 2
    assert list(check_holes(ids(sequence=True))) == []


def test_an_id_that_is_no_whole_number_has_no_place_in_a_sequence() -> None:
    kept = ids(1, "x", 2**63, 1.5, None, 3, sequence=True)
    assert (kept.without, len(kept)) == (4, 2)
    (finding,) = check_without(kept)
    assert (finding.kind, finding.records, finding.offset, finding.violation) == ("no_id", 4, 1, False)


def test_a_gap_is_lost_where_something_later_was_delivered_and_else_not_there_yet() -> None:
    source = ids("a", "b", "c", "d", topic="source")

    def missing(due: int, *, certain: bool) -> tuple[list[int], list[int]]:
        lost, waiting = missing_records(ids("a", "c"), source, {0: due}, certain=certain)
        return list(lost), list(waiting)

    assert missing(4, certain=False) == ([1], [3])
    assert missing(4, certain=True) == ([1, 3], [])
    assert missing(3, certain=True) == ([1], []), "what the group has not committed is not missed"
    lost, waiting = missing_records(ids(), ids(topic="source"), {}, certain=True)
    assert (len(lost), len(waiting)) == (0, 0)


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_the_counts_agree_with_a_count_by_hand(there: list[int], wanted: list[int]) -> None:
    sink, source = ids(*there, partitions=3), ids(*wanted, topic="source")
    assert records(list(check_duplicates(sink))) == len(there) - len(set(there))
    lost, _ = missing_records(sink, source, {0: len(wanted)}, certain=True)
    assert len(lost) == sum(one not in there for one in wanted)
    assert len(records_without_source(sink, source)) == sum(one not in wanted for one in there)
    numbers = ids(*there, sequence=True)
    holes = max(there) - min(there) + 1 - len(set(there)) if there else 0
    assert records(list(check_holes(numbers))) == holes
