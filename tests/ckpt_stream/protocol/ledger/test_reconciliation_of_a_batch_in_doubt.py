"""A start with a batch in doubt: which lanes are to finish it, with which number of lanes, or why it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ckpt_stream.errors import ForeignLedger, LanesChanged, LedgerAhead, LedgerLost
from ckpt_stream.protocol.ledger.decision import Action, decide
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import AnchorsToWrite, Reconciliation, Resume
from tests.ckpt_stream.protocol.ledger.reconciling import ADOPTED, refusal_of, start
from tests.ckpt_stream.samples import about_to_write, checkpoint_at, held

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("done", "kind", "to_finish"),
    [
        ((), Resume.IN_DOUBT, (0, 1, 2)),
        ((1,), Resume.IN_DOUBT_BEGUN, (0, 2)),
        ((0, 2), Resume.IN_DOUBT_BEGUN, (1,)),
        ((0, 1, 2), Resume.IN_DOUBT_BEGUN, ()),
    ],
)
def test_a_batch_in_doubt_names_the_lanes_to_finish(
    done: Sequence[int], kind: Resume, to_finish: tuple[int, ...]
) -> None:
    ledger = [held(5 if lane in done else 4, lane, 3) for lane in range(3)]
    assert start(checkpoint_at(5, 4), *ledger, lanes=3) == Reconciliation(kind, 5, to_finish)


def test_the_first_batch_in_doubt_names_the_lanes_to_finish() -> None:
    verdict = start(checkpoint_at(0, None), None, held(0, 1, 2), lanes=2)
    assert verdict == Reconciliation(Resume.IN_DOUBT_BEGUN, 0, (0,))


def test_the_first_batch_after_an_adoption_is_finished_from_the_adopted_record() -> None:
    ledger = held(7, 0, 2, query_id="query-0"), held(0, 1, 2)
    verdict = start(checkpoint_at(0, None), *ledger, lanes=2, adopted=ADOPTED)
    assert verdict.to_finish == (0,)


@pytest.mark.parametrize("lanes", [1, 2, 4])
def test_other_lanes_are_refused_while_a_batch_is_in_doubt(lanes: int) -> None:
    ledger = held(5, 0, 3), held(4, 1, 3), held(4, 2, 3)
    refused = refusal_of(LanesChanged, checkpoint_at(5, 4), *ledger, lanes=lanes)
    assert "Batch 5" in refused.risk
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


def test_a_lane_that_is_in_the_sink_decides_although_another_one_is_anchored_at_the_batch() -> None:
    ledger = held(5, 0, 3), held(5, 1, 3, kind=ANCHOR), held(4, 2, 3)
    assert start(checkpoint_at(5, 4), *ledger, lanes=3).to_finish == (2,)


@pytest.mark.parametrize("ledger", [(held(5, 0, 2), held(4, 1, 3)), (held(4, 0, 2), held(4, 1, 3))])
def test_a_lane_that_wrote_its_last_batch_in_another_division_is_refused(ledger: Sequence[LedgerRecord]) -> None:
    """Only an anchor may have another number of lanes: it is what is left of a change that was interrupted."""
    refusal_of(LanesChanged, checkpoint_at(5, 4), *ledger, lanes=2)


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
def test_a_batch_in_doubt_of_which_nothing_is_written_is_divided_again_once_every_lane_knows(
    before: int, after: int
) -> None:
    ledger = [held(4, lane, before) for lane in range(before)]
    verdict = start(checkpoint_at(5, 4), *ledger, lanes=after)
    # Also the lanes that are no more: an attempt of the former driver must not find that batch 5 is next in its lane.
    anchors = AnchorsToWrite(ledger[0], tuple(reversed(range(max(before, after)))))
    assert verdict == Reconciliation(Resume.IN_DOUBT, 5, tuple(range(after)), anchors, lanes_changed=(before, after))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_the_first_batch_after_an_adoption_is_divided_again_as_well(lanes: int) -> None:
    ledger = [held(7, lane, 2, query_id="query-0") for lane in range(2)]
    verdict = start(checkpoint_at(0, None), *ledger, lanes=lanes, adopted=ADOPTED)
    assert verdict.to_finish == tuple(range(lanes))
    assert verdict.anchors == (None if lanes == 2 else AnchorsToWrite(ledger[0], tuple(reversed(range(max(2, lanes))))))


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("committed", [4, 5])
def test_a_change_of_lanes_that_was_interrupted_may_be_finished_or_undone(committed: int, lanes: int) -> None:
    at = committed
    ledger = held(at, 0, 3), held(at, 1, 2, kind=ANCHOR), held(at, 2, 2, kind=ANCHOR)
    anchors = start(checkpoint_at(5, committed), *ledger, lanes=lanes).anchors
    told = {1: (2, 1, 0), 2: (0,), 3: (2, 1)}[lanes]
    assert anchors == AnchorsToWrite(ledger[0], told)


def test_an_interrupted_change_is_undone_when_a_late_attempt_has_written_the_first_lane() -> None:
    ledger = held(5, 0, 3), held(4, 1, 2, kind=ANCHOR), held(4, 2, 2, kind=ANCHOR)
    refusal_of(LanesChanged, checkpoint_at(5, 4), *ledger, lanes=2)
    verdict = start(checkpoint_at(5, 4), *ledger, lanes=3)
    assert (verdict.to_finish, verdict.anchors) == ((1, 2), AnchorsToWrite(ledger[1], (2, 1)))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_a_lane_of_the_former_division_that_lacks_the_batch_before_is_refused_with_any_number_of_lanes(
    lanes: int,
) -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, 4), held(4, 0, 2), held(3, 1, 2), lanes=lanes)
    assert "Lane 1" in refused.found


def test_a_checkpoint_rolled_back_to_a_batch_in_doubt_is_refused() -> None:
    refused = refusal_of(LedgerAhead, checkpoint_at(5, 4), held(8))
    assert "batch 5" in refused.found
