"""The rules of the audit: each name is seen once, of copies the first counts, and places only go up in a partition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_stream.protocol.verification.audit import Audit, LanePlaces
from ckpt_stream.protocol.verification.scan_result import (
    ALIEN,
    DUPLICATE,
    OUT_OF_ORDER,
    ExpectedLane,
    ExpectedLanes,
    Name,
)

pytestmark = pytest.mark.unit

PLACES = st.lists(st.integers(0, 9), max_size=30)


def one_lane(records: int) -> ExpectedLanes:
    return ExpectedLanes([ExpectedLane(0, 0, 7, 0, records)])


def names(*places: int) -> list[Name | None]:
    return [(7, 0, place) for place in places]


@given(PLACES, PLACES, st.integers(1, 7))
def test_chunks_of_any_size_give_the_same_as_a_lane_at_once(first: list[int], second: list[int], chunk: int) -> None:
    whole, parts = LanePlaces(10), LanePlaces(10)
    for partition, places in enumerate((first, second)):
        again, late = whole.add(partition, np.array(places, dtype=np.int64))
        found = [
            parts.add(partition, np.array(places[i : i + chunk], dtype=np.int64)) for i in range(0, len(places), chunk)
        ]
        assert [list(a) for a in (again, late)] == [[one for part in found for one in part[n]] for n in (0, 1)]
    assert (parts.seen, parts.missing) == (whole.seen, whole.missing)


@given(PLACES)
def test_the_counts_agree_with_a_count_by_hand(places: list[int]) -> None:
    audit = Audit(one_lane(10))
    if places:
        audit.add(0, 0, range(len(places)), names(*places))
    result = audit.finish()
    counted, highest, late = Counter(places), -1, 0
    for place in dict.fromkeys(places):
        late += place < highest
        highest = max(highest, place)
    assert result.counts == {ALIEN: 0, DUPLICATE: len(places) - len(counted), OUT_OF_ORDER: late}
    assert [(lane.seen, lane.missing) for lane in result.incomplete] == (
        [] if len(counted) == 10 else [(len(counted), tuple(n for n in range(10) if n not in counted)[:5])]
    )


@pytest.mark.parametrize("name", [None, (7, 0, 3), (7, 1, 0), (8, 0, 0), (7, 10**17, 0), (10**17, 0, 0)])
def test_a_record_that_names_no_record_of_the_ledger_is_alien(name: Name | None) -> None:
    audit = Audit(one_lane(3))
    audit.add(2, 0, [40, 41, 42, 43], [*names(0, 1, 2), name])
    result = audit.finish()
    assert result.counts[ALIEN] == 1
    assert [(e.kind, e.partition, e.offset, e.name) for e in result.examples] == [(ALIEN, 2, 43, name)]
    assert result.incomplete == []


def test_a_copy_of_a_complete_lane_is_a_duplicate() -> None:
    audit = Audit(one_lane(2))
    audit.add(0, 0, [0, 1], names(0, 1))
    audit.add(0, 0, [2, 3], names(1, 0))
    result = audit.finish()
    assert (result.counts[DUPLICATE], result.counts[OUT_OF_ORDER], result.incomplete) == (2, 0, [])


def test_a_name_that_two_queries_used_means_the_one_in_whose_range_it_lies() -> None:
    expected = ExpectedLanes([ExpectedLane(0, 0, 7, 0, 1), ExpectedLane(1, 1, 7, 0, 1), ExpectedLane(2, 1, 8, 0, 1)])
    assert [expected.batch_meant((7, 0, 0), lies_in) for lies_in in (None, 0, 1, 2)] == [0, 0, 1, 1]
    assert expected.batch_meant((8, 0, 0), 0) == 2, "the query before has no such lane"
