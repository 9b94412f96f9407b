"""The ledger against the checkpoint, which was read before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from airflow_ckpt.verify.checks.checkpoint_check import check_checkpoint
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.ledger_batches import batches_of
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.run_files.adoption import Adoption
from tests.ckpt_stream.samples import QUERY, checkpoint_at, held

pytestmark = pytest.mark.unit

Found = list[tuple[str, int | None]]


def found(
    lanes: Sequence[Sequence[LedgerRecord]],
    after: IntactCheckpoint,
    *,
    before: IntactCheckpoint | None = None,
    adopted: Adoption | None = None,
) -> Found:
    findings = list(check_checkpoint(batches_of(lanes), before or after, after, adopted))
    assert all(f.violation for f in findings)
    return [(f.kind, f.batch) for f in findings]


def batches(*numbers: int, query: str = QUERY) -> list[LedgerRecord]:
    return [held(n, query_id=query) for n in numbers]


@pytest.mark.parametrize(
    ("newest", "committed", "expected"),
    [
        (2, 2, []),
        (2, 1, []),
        (3, 2, []),
        (3, 3, [("ledger_behind", 3)]),
        (1, 1, [("ledger_ahead", 2)]),
        (None, None, []),
    ],
    ids=["at rest", "before Spark's commit", "in flight", "a batch is missing", "rolled back", "nothing is known"],
)
def test_the_ledger_is_neither_behind_the_checkpoint_nor_ahead_of_it(
    newest: int | None, committed: int | None, expected: Found
) -> None:
    assert found([batches(0, 1, 2)], checkpoint_at(newest, committed)) == expected


def test_a_batch_that_is_committed_and_lacks_a_lane_is_missing() -> None:
    lanes = [[held(n, lane, 2) for n in range(3) if (n, lane) != (2, 1)] for lane in range(2)]
    assert found(lanes, checkpoint_at(2, 2)) == [("ledger_behind", 2)]
    assert found(lanes, checkpoint_at(2, 1)) == []


def test_what_a_running_stream_adds_during_the_look_is_no_violation() -> None:
    """The ledger was read between: it is never behind the first look at the checkpoint, nor ahead of the second."""
    assert found([batches(0, 1, 2)], checkpoint_at(4, 4), before=checkpoint_at(2, 1)) == []
    assert found([batches(0, 1, 2)], checkpoint_at(2, 2), before=checkpoint_at(1, 0)) == []


def test_a_batch_of_other_input_than_the_checkpoints_is_a_violation() -> None:
    after = replace(checkpoint_at(2, 2), digests={1: "another", 2: "input-2"})
    assert found([batches(0, 1, 2)], after) == [("other_input", 1)]


def test_a_ledger_of_another_query_is_foreign_unless_it_was_taken_over() -> None:
    lanes, after = [batches(0, 1, query="before")], checkpoint_at(None, None)
    assert found(lanes, after) == [("foreign_ledger", None)]
    assert found(lanes, after, adopted=Adoption("before", 1)) == []
    assert found(lanes, after, adopted=Adoption("before", 0)) == [("foreign_ledger", None)]


def test_a_query_that_took_over_and_has_committed_without_a_ledger_record_is_behind() -> None:
    after = checkpoint_at(0, 0)
    assert found([batches(0, 1, query="before")], after, adopted=Adoption("before", 1)) == [("ledger_behind", 0)]


@pytest.mark.parametrize(
    ("mine", "expected"),
    [
        ([held(0)], [("foreign_ledger", 0)]),
        ([held(0, adopted={"query_id": "before", "batch": 1})], []),
        # Which batch it began with is forgotten, and so is what that took over.
        ([held(3)], []),
    ],
)
def test_a_query_that_writes_on_in_the_ledger_of_another_one_has_taken_it_over(
    mine: list[LedgerRecord], expected: Found
) -> None:
    number = mine[0].batch
    assert found([[*batches(0, 1, query="before"), *mine]], checkpoint_at(number, number)) == expected


def test_without_a_checkpoint_or_without_a_ledger_nothing_can_be_compared() -> None:
    assert found([batches(0)], checkpoint_at(None, None, query=None)) == []
    assert found([[]], checkpoint_at(5, 5)) == []
