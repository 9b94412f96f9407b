"""How much of a batch that an earlier run began is in the sink, by the last record of each lane."""

from __future__ import annotations

import pytest

from ckpt_stream.driver.unfinished_batch import UnfinishedBatch, find_unfinished_batch
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR
from tests.ckpt_stream.samples import QUERY, checkpoint_at, held

pytestmark = pytest.mark.unit

IN_DOUBT = checkpoint_at(3, 2)


def test_a_checkpoint_whose_newest_batch_is_committed_has_no_unfinished_batch() -> None:
    assert find_unfinished_batch(checkpoint_at(3, 3), [held(3)], (QUERY, 3)) is None


def test_lanes_that_hold_the_batch_are_counted_with_their_format_and_their_run() -> None:
    lanes = [held(3, lane, 3, attempt="run-1", format=1) for lane in (0, 2)]
    found = find_unfinished_batch(IN_DOUBT, [lanes[0], held(2, 1, 3), lanes[1]], None)
    assert found == UnfinishedBatch(3, 2, ledger_format=1, attempt="run-1")


@pytest.mark.parametrize(
    "last",
    [None, held(2), held(3, query_id="earlier"), held(3, kind=ANCHOR)],
    ids=["empty", "the batch before", "of another query", "an anchor"],
)
def test_a_lane_whose_last_record_is_anything_else_does_not_hold_the_batch(last: object) -> None:
    assert find_unfinished_batch(IN_DOUBT, [last], None) == UnfinishedBatch(3, 0)  # type: ignore[list-item]


@pytest.mark.parametrize("attempts", [("run-1", "run-2"), ("run-1", ""), ("", "")])
def test_lanes_of_several_runs_or_of_an_unknown_one_are_no_single_attempt(attempts: tuple[str, str]) -> None:
    found = find_unfinished_batch(IN_DOUBT, [held(3, n, 2, attempt=run) for n, run in enumerate(attempts)], None)
    assert found is not None
    assert (found.lanes_in_sink, found.attempt, found.is_one_attempt(2)) == (2, None, False)


@pytest.mark.parametrize(
    ("accepted", "counts"), [((QUERY, 3), True), ((QUERY, 2), False), (("earlier", 3), False), (None, False)]
)
def test_a_user_accepts_the_replay_of_one_batch_of_one_query(accepted: tuple[str, int] | None, counts: bool) -> None:
    found = find_unfinished_batch(IN_DOUBT, [held(3)], accepted)
    assert found is not None
    assert found.accepted is counts


@pytest.mark.parametrize(("in_sink", "partly", "whole"), [(0, False, False), (1, True, False), (2, False, True)])
def test_a_batch_is_partly_in_the_sink_if_it_has_some_of_its_lanes_and_not_all(
    in_sink: int, partly: bool, whole: bool
) -> None:
    batch = UnfinishedBatch(3, in_sink, attempt="run-1")
    assert (batch.is_partly_in_sink(2), batch.is_one_attempt(2)) == (partly, whole)
