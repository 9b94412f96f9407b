"""A start after a batch that the checkpoint has committed: clean, with other lanes, or refused."""

from __future__ import annotations

import pytest

from ckpt_stream.errors import LanesChanged, LedgerAhead, LedgerLost, OtherInput
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR
from ckpt_stream.protocol.ledger.reconciliation import AnchorsToWrite, Reconciliation, Resume
from tests.ckpt_stream.protocol.ledger.reconciling import refusal_of, start
from tests.ckpt_stream.samples import checkpoint_at, held

pytestmark = pytest.mark.unit


def test_a_wish_to_adopt_means_nothing_to_a_checkpoint_that_has_batches() -> None:
    assert start(checkpoint_at(5, 5), held(5), adopt=True) == Reconciliation(Resume.CLEAN, 5)


@pytest.mark.parametrize("batch", [0, 5])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_committed_batch_that_the_ledger_holds_is_a_clean_resume(batch: int, lanes: int) -> None:
    ledger = [held(batch, lane, lanes) for lane in range(lanes)]
    assert start(checkpoint_at(batch, batch), *ledger, lanes=lanes) == Reconciliation(Resume.CLEAN, batch)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
def test_lanes_may_change_at_a_clean_stop_and_are_anchored_there(before: int, after: int) -> None:
    ledger = [held(5, lane, before) for lane in range(before)]
    verdict = start(checkpoint_at(5, 5), *ledger, lanes=after)
    anchors = AnchorsToWrite(ledger[0], tuple(reversed(range(max(before, after)))))
    assert verdict == Reconciliation(Resume.CLEAN, 5, anchors=anchors, lanes_changed=(before, after))


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_after_the_anchors_of_a_narrower_stream_the_lanes_left_over_at_the_same_batch_do_not_count(lanes: int) -> None:
    ledger = held(5, 0, 1, kind=ANCHOR), held(5, 1, 3), held(5, 2, 3)
    verdict = start(checkpoint_at(5, 5), *ledger, lanes=lanes)
    assert (
        verdict.anchors == {1: None, 2: AnchorsToWrite(ledger[0], (2, 1, 0)), 3: AnchorsToWrite(ledger[0], (0,))}[lanes]
    )


def test_a_lane_left_over_from_an_earlier_query_is_anchored_although_its_batch_has_the_same_number() -> None:
    ledger = held(5, 0, 1), held(5, 1, 2, query_id="earlier")
    assert start(checkpoint_at(5, 5), *ledger, lanes=2).anchors == AnchorsToWrite(ledger[0], (1, 0))


def test_lanes_left_over_from_earlier_do_not_count_when_the_stream_is_widened_again() -> None:
    verdict = start(checkpoint_at(8, 8), held(8), held(5, 1, 3), held(5, 2, 3, query_id="query-0"), lanes=3)
    assert verdict == Reconciliation(Resume.CLEAN, 8, anchors=AnchorsToWrite(held(8), (2, 1, 0)), lanes_changed=(1, 3))


def test_a_rolled_back_checkpoint_is_refused_with_the_batch_it_would_write_next() -> None:
    refused = refusal_of(LedgerAhead, checkpoint_at(5, 5), held(8))
    assert "batch 6" in refused.found
    assert "batch 8" in refused.found
    assert "batches 6 to 8" in refused.risk


def test_a_rolled_back_checkpoint_is_refused_if_a_single_lane_is_ahead() -> None:
    refused = refusal_of(LedgerAhead, checkpoint_at(5, 5), held(5, 0, 2), held(6, 1, 2), lanes=2)
    assert "lane 1" in refused.found
    assert "batches 6 to 6" in refused.risk


def test_a_rolled_back_checkpoint_is_refused_with_other_lanes_too() -> None:
    refusal_of(LedgerAhead, checkpoint_at(5, 5), held(8), lanes=3)


@pytest.mark.parametrize("batch", [0, 5])
def test_a_committed_batch_that_the_ledger_lacks_is_refused_with_its_own_number(batch: int) -> None:
    last = held(batch - 1) if batch else None
    refused = refusal_of(LedgerLost, checkpoint_at(batch, batch), last)
    assert f"batch {batch}." in refused.found
    assert (f"batch {batch - 1}" in refused.found) == (batch > 0), "an empty lane ends with no batch"


def test_a_committed_batch_that_a_single_lane_lacks_is_refused() -> None:
    refused = refusal_of(LedgerLost, checkpoint_at(5, 5), held(5, 0, 2), held(4, 1, 2), lanes=2)
    assert "Lane 1" in refused.found


def test_a_committed_batch_whose_lanes_were_divided_differently_is_refused() -> None:
    refusal_of(LanesChanged, checkpoint_at(5, 5), held(5, 0, 2), held(5, 1, 3), lanes=2)


def test_a_committed_batch_with_other_input_is_refused() -> None:
    refusal_of(OtherInput, checkpoint_at(5, 5), held(5, digest="input-other"))
