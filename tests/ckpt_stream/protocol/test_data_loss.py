"""What a source has lost: found from two positions, and accepted range by range."""

from __future__ import annotations

import pytest

from ckpt_stream.protocol.data_loss import (
    LostRange,
    after_loss,
    beyond_accepted,
    find_lost,
    lost_ranges_from,
    name_ranges,
)

pytestmark = pytest.mark.unit

POSITION = {"orders": {"0": 50, "1": 7}}
RANGE = LostRange("orders", 0, 50, 80)
GONE = LostRange("old", 0, 7, None)


@pytest.mark.parametrize(
    ("earliest", "lost"),
    [
        ({"orders": {0: 0, 1: 0}}, ()),
        ({"orders": {0: 50, 1: 7}}, ()),
        ({"orders": {0: 80, 1: 7}}, (RANGE,)),
        ({"orders": {0: 80, 1: 8}}, (RANGE, LostRange("orders", 1, 7, 8))),
        ({"orders": {0: 0}}, (LostRange("orders", 1, 7, None),)),
        ({}, (LostRange("orders", 0, 50, None), LostRange("orders", 1, 7, None))),
        # New partitions are read from their first record.
        ({"orders": {0: 0, 1: 0, 2: 0}, "new": {0: 0}}, ()),
        ({"orders": {0: 0, 1: 0, 2: 3}, "new": {0: 4}}, (LostRange("new", 0, 0, 4), LostRange("orders", 2, 0, 3))),
    ],
)
def test_lost_is_what_lies_between_the_position_and_the_first_record(
    earliest: dict[str, dict[int, int]], lost: tuple[LostRange, ...]
) -> None:
    assert find_lost(POSITION, earliest) == lost


def test_a_stream_without_a_position_has_lost_nothing() -> None:
    assert find_lost({}, {"orders": {0: 80}}) == ()


@pytest.mark.parametrize(
    ("accepted", "beyond"),
    [
        ((), (RANGE,)),
        ((RANGE,), ()),
        ((GONE, RANGE), ()),
        ((LostRange("orders", 0, 40, 90),), ()),
        ((LostRange("orders", 0, 50, 79),), (RANGE,)),
        ((LostRange("orders", 0, 51, 80),), (RANGE,)),
        ((LostRange("orders", 1, 50, 80),), (RANGE,)),
        ((LostRange("others", 0, 50, 80),), (RANGE,)),
        # Who has accepted that a partition is gone has not accepted that it was cut, nor the other way round.
        ((LostRange("orders", 0, 50, None),), (RANGE,)),
    ],
)
def test_only_what_lies_within_an_accepted_range_is_accepted(
    accepted: tuple[LostRange, ...], beyond: tuple[LostRange, ...]
) -> None:
    assert beyond_accepted((RANGE,), accepted) == beyond
    assert beyond_accepted((GONE,), (LostRange("old", 0, 7, 100),)) == (GONE,)
    assert beyond_accepted((GONE,), (GONE,)) == ()


def test_behind_the_loss_a_stream_goes_on_where_records_are() -> None:
    position = {"orders": {"0": 50, "1": 7}, "old": {"0": 7}}
    lost = (RANGE, GONE, LostRange("new", 2, 0, 30))
    assert after_loss(position, lost) == {"orders": {"0": 80, "1": 7}, "new": {"2": 30}}
    assert position["old"] == {"0": 7}


def test_ranges_survive_the_way_into_a_document() -> None:
    assert lost_ranges_from([RANGE.as_dict(), GONE.as_dict()]) == (RANGE, GONE) == lost_ranges_from((RANGE, GONE))


def test_a_thousand_partitions_are_not_all_named() -> None:
    assert name_ranges([RANGE, GONE]) == "orders-0 offsets 50 to 79, old-0 from offset 7 on (the partition is gone)"
    assert name_ranges([LostRange("t", n, 0, 1) for n in range(1000)]).endswith(
        "t-4 offsets 0 to 0 and 995 more partitions"
    )
