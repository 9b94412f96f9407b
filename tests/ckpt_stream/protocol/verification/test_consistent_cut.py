"""A last batch, and what bounds it in the sink, of a stream that may be running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from ckpt_stream.protocol.ledger.ledger_batches import Batch, batches_of
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import (
    ALL_BATCHES,
    BatchRange,
    ConsistentCut,
    Snapshot,
    known_end,
    take_consistent_cut,
)
from tests.ckpt_stream.protocol.ledger.test_ledger_batches import lane, names
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit


def cut_of(batches: Sequence[Batch], ends: TopicEnds, topic: str, wanted: BatchRange = ALL_BATCHES) -> ConsistentCut:
    snapshot = Snapshot(batches, ends, at_rest=True, wanted=wanted)
    return take_consistent_cut(lambda: snapshot, topic, settle_seconds=0)[0]


def written(count: int) -> list[Batch]:
    """Batches of ten records each."""
    return batches_of([[held(n, sink_start={"sink": {"0": n * 10}}) for n in range(count)]])


def test_a_cut_leaves_out_what_lies_before_something_forgotten() -> None:
    batches = batches_of([lane(0, ("a", [90, 91]), ("b", [7, 8]), lanes=1)])
    ends = TopicEnds({0: 0}, {0: 9}, {0: 9})

    def cut(wanted: BatchRange) -> list[str]:
        return names(list(cut_of(batches, ends, "sink", wanted).batches))

    assert cut(BatchRange()) == ["|b7", "b8"]
    assert cut(BatchRange(after=90, query="a")) == ["|b7", "b8"]
    assert cut(BatchRange(after=7)) == ["b8"]
    assert cut(BatchRange(until=6)) == [], "where batch 91 ended is forgotten"


def test_batches_that_know_nothing_of_a_topic_have_no_place_in_it() -> None:
    """The first two wrote dead letters to another topic, and the last none."""
    starts = [None, None, 10, 20, None]
    records = [held(n, sink_start={} if at is None else {"dead": {"0": at}}) for n, at in enumerate(starts)]
    ends = TopicEnds({0: 0}, {0: 30}, {0: 30})
    cut = cut_of(batches_of([records]), ends, "dead")
    assert cut.boundaries.offsets == {0: [10, 10, 10, 20, 30]}
    assert [cut.boundaries.batch_at(0, offset)[0] for offset in (10, 19, 20, 29)] == [2, 2, 3, 3]


@pytest.mark.parametrize(("stable", "left"), [(30, 3), (29, 2), (20, 2), (19, 1), (0, 0)])
def test_a_cut_leaves_out_every_batch_of_which_readers_do_not_see_the_end_yet(stable: int, left: int) -> None:
    """The marker of a batch may be late in the sink although the ledger has its record, and that of the next."""
    records = [held(n, sink_start={"sink": {"0": n * 10}}) for n in range(4)]
    ends = TopicEnds({0: 0}, {0: stable}, {0: 40})
    cut = cut_of(batches_of([records]), ends, "sink")
    assert len(cut.batches) == left
    assert cut.left_out == 3


def test_a_sink_that_stands_still_is_cut_at_its_end() -> None:
    cut = cut_of(written(2), TopicEnds({0: 0}, {0: 25}, {0: 25}), "sink")
    assert (len(cut.batches), cut.end, cut.next_batch, cut.left_out) == (2, {0: 25}, None, None)


def test_a_newest_batch_that_lacks_a_lane_is_left_out_of_a_sink_at_rest() -> None:
    """Its other lane may be committed at any moment."""
    lanes = [[held(n, lane, 2, sink_start={"sink": {"0": n * 10}}) for n in range(3 - lane)] for lane in (0, 1)]
    cut = cut_of(batches_of(lanes), TopicEnds({0: 0}, {0: 25}, {0: 25}), "sink")
    assert (len(cut.batches), cut.end, cut.left_out) == (2, {0: 20}, 2)


def test_a_range_that_ends_before_the_newest_batch_needs_no_standstill(slept: list[float]) -> None:
    """It is bounded by the batch behind it, whatever is in flight."""
    snapshot = Snapshot(written(3), TopicEnds({0: 0}, {0: 25}, {0: 31}), at_rest=False, wanted=BatchRange(until=0))
    cut, _ = take_consistent_cut(lambda: snapshot, "sink")
    assert slept == []
    assert (len(cut.batches), cut.end) == (1, {0: 10})
    assert cut.next_batch is snapshot.batches[1]


@pytest.mark.parametrize(("earliest", "left"), [(10, [1, 2]), (11, [2]), (21, [])])
def test_retention_takes_away_only_the_batches_that_begin_before_the_topic_does(earliest: int, left: list[int]) -> None:
    cut = cut_of(written(3), TopicEnds({0: earliest}, {0: 30}, {0: 30}), "sink").after_retention({0: earliest})
    assert [batch.number for batch in cut.batches] == left
    assert cut.start == {0: 10 * left[0] if left else 30}


def test_a_range_is_not_cut_before_readers_see_all_of_its_last_batch(slept: list[float]) -> None:
    """The next batch is in the ledger, but the marker of the last one may be late in a partition of the sink."""
    ends = [TopicEnds({0: 0}, {0: stable}, {0: 31}) for stable in (9, 10)]
    looks = iter([Snapshot(written(3), end, at_rest=False, wanted=BatchRange(until=0)) for end in ends])
    cut, found = take_consistent_cut(lambda: next(looks), "sink")
    assert (len(cut.batches), cut.end, found.ends, len(slept)) == (1, {0: 10}, ends[1], 1)


def test_a_stream_that_stands_still_within_the_time_is_not_cut_short(slept: list[float]) -> None:
    still = TopicEnds({0: 0}, {0: 25}, {0: 25})
    looks: Iterator[Snapshot] = iter([Snapshot(written(2), still, at_rest=rest) for rest in (False, False, True)])
    cut, found = take_consistent_cut(lambda: next(looks), "sink")
    assert (len(cut.batches), found.at_rest, len(slept)) == (2, True, 2)


@pytest.mark.parametrize(
    ("stable", "high", "next_start", "rest", "end"),
    [
        (90, 120, {0: 90}, False, {0: 90}),
        (89, 120, {0: 90}, False, None),
        (89, 120, {0: 90}, True, None),
        (100, 100, None, True, {0: 100}),
        (100, 100, None, False, None),
        (100, 120, None, True, None),
        (100, 100, {0: 90}, True, {0: 90}),
    ],
)
def test_a_batch_ends_where_the_next_one_begins_else_where_a_sink_at_rest_does(
    stable: int, high: int, next_start: dict[int, int] | None, rest: bool, end: dict[int, int] | None
) -> None:
    ends = TopicEnds({0: 0}, {0: stable}, {0: high})
    assert known_end(ends, next_start, nothing_in_flight=rest) == end
