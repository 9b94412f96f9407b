"""Whether the ledger holds the batches that were asked for, and whether the cut holds any of them."""

from __future__ import annotations

import pytest

from airflow_ckpt.verify.checks.history_check import check_history
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, Finding, Verdict
from ckpt_stream.protocol.ledger.ledger_batches import batches_of
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import ALL_BATCHES, BatchRange, Snapshot, take_consistent_cut
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

#: How many records of an open transaction lie behind the newest batch. Each batch has ten.
STANDS_STILL, GOES_ON = 0, 7


def found(count: int, behind: int, wanted: BatchRange = ALL_BATCHES, *, hidden: int = 0) -> list[Finding]:
    """What is found of so many batches; readers do not see the last ``hidden`` records of them."""
    batches = batches_of([[held(n, sink_start={"sink": {"0": n * 10}}) for n in range(count)]])
    ends = TopicEnds({0: 0}, {0: count * 10 - hidden}, {0: count * 10 + behind})
    snapshot = Snapshot(batches, ends, at_rest=True, wanted=wanted)
    cut, _ = take_consistent_cut(lambda: snapshot, "sink", settle_seconds=0)
    return list(check_history(batches, cut, wanted))


def verdict_with(findings: list[Finding]) -> str:
    return Verdict("orders", "sink", findings=findings).verdict


def test_one_batch_of_which_the_end_cannot_be_seen_is_unknown() -> None:
    findings = found(1, GOES_ON)
    assert [(f.kind, f.batch, f.query, f.violation) for f in findings] == [("in_flight", 0, "query-1", False)]
    assert verdict_with(findings) == UNKNOWN
    assert findings[0].helps


def test_one_batch_of_a_sink_that_stands_still_is_verified() -> None:
    assert found(1, STANDS_STILL) == []


def test_a_batch_before_the_one_in_flight_is_enough_to_look_at() -> None:
    assert found(2, GOES_ON) == []


def test_new_batches_of_which_readers_see_none_whole_are_unknown() -> None:
    findings = found(3, GOES_ON, BatchRange(after=0), hidden=15)
    assert [(f.kind, f.batch) for f in findings] == [("in_flight", 1)]


def test_a_batch_of_which_lanes_are_still_to_come_is_unknown() -> None:
    """Its driver died between two lanes: no transaction is open, and nothing moves."""
    batches = batches_of([[held(0, lanes=2)], []])
    snapshot = Snapshot(batches, TopicEnds({0: 0}, {0: 5}, {0: 5}), at_rest=True)
    cut, _ = take_consistent_cut(lambda: snapshot, "sink", settle_seconds=0)
    assert [f.kind for f in check_history(batches, cut, ALL_BATCHES)] == ["in_flight"]


@pytest.mark.parametrize("behind", [STANDS_STILL, GOES_ON])
def test_nothing_new_since_the_last_verification_is_clean_whatever_is_in_flight(behind: int) -> None:
    findings = found(2, behind, BatchRange(after=1))
    assert verdict_with(findings) == CLEAN, findings


def test_the_one_new_batch_in_flight_is_left_to_the_next_verification() -> None:
    """A stream with long batches is verified often: nothing of it is wrong, and what was verified is not claimed to be more."""
    assert found(2, GOES_ON, BatchRange(after=0)) == []


def test_a_range_with_an_end_that_is_in_flight_is_found_once() -> None:
    assert [(f.kind, f.batch) for f in found(1, GOES_ON, BatchRange(until=0))] == [("not_there_yet", 0)]


@pytest.mark.parametrize(
    ("count", "wanted", "kinds"),
    [
        (0, ALL_BATCHES, ["no_batches"]),
        (0, BatchRange(after=3), ["no_batches"]),
        (2, BatchRange(after=2), ["not_there_yet"]),
        (2, BatchRange(until=2), ["not_there_yet"]),
    ],
)
def test_a_range_that_the_ledger_does_not_hold_is_unknown(count: int, wanted: BatchRange, kinds: list[str]) -> None:
    findings = found(count, STANDS_STILL, wanted)
    assert [f.kind for f in findings] == kinds
    assert verdict_with(findings) == UNKNOWN
