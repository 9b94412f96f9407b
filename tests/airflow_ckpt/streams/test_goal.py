"""A goal is reached, failed with the reason, timed out, or still waited for."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from airflow_ckpt.exceptions import BadArgument, OtherVersion
from airflow_ckpt.streams.goal import NOT_YET, OUT_OF_REACH, REACHED, TIMEOUT, Goal, waiting_line
from airflow_ckpt.streams.status import StreamStatus
from tests.airflow_ckpt.supervision.samples import a_status, at, text

pytestmark = pytest.mark.unit

OFFSETS = {"orders_in": {"0": 100, "1": 50}}


def outcome(goal: Goal, status: StreamStatus, now: float = 0) -> str:
    return goal.judge(status, at(now)).outcome


@pytest.mark.parametrize(
    ("goal", "reached", "not_yet"),
    [
        (Goal(started=True), a_status("RUNNING"), a_status("STARTING")),
        (Goal(started=True), a_status("IDLE"), a_status("STARTING")),
        (Goal(started=True), a_status("FINISHED"), a_status("STARTING")),
        (Goal(batches=3), a_status(batches_in_run=3), a_status(batches_in_run=2, batch=99)),
        (Goal(batch=7), a_status(batch=7), a_status(batch=6)),
        (Goal(batch=0), a_status(batch=0), a_status(batch=None)),
        (Goal(after_batch=7), a_status(batch=8), a_status(batch=7)),
        (Goal(after_batch=-1), a_status(batch=0), a_status(batch=None)),
        (Goal(after_batch=7), a_status("IDLE", batch=7), a_status("RUNNING", batch=7)),
        (Goal(after_batch=7), a_status("FINISHED", batch=7), a_status("STARTING", batch=7)),
        (Goal(max_lag=10), a_status(lag_records=10), a_status(lag_records=11)),
        (Goal(max_lag=0), a_status(lag_records=0), a_status(lag_records=None)),
        (Goal(drained=True), a_status("IDLE", lag_records=0), a_status(lag_records=1)),
        (Goal(drained=True), a_status(lag_records=0), a_status(lag_records=0, in_doubt=3)),
        (Goal(drained=True), a_status("FINISHED", lag_records=0), a_status("STARTING", lag_records=0)),
        # On a busy topic some input always waits: what was there when the wait began will do.
        (Goal(drained=True, ends=OFFSETS), a_status(lag_records=9, offsets=OFFSETS), a_status(lag_records=9)),
        (Goal(drained=True, ends=OFFSETS), a_status("IDLE", lag_records=0), a_status("STARTING", offsets=OFFSETS)),
        (Goal(ended=True), a_status("FINISHED"), a_status("RUNNING")),
        (Goal(ended=True), a_status("STOPPED"), a_status("IDLE", lag_records=0)),
        (
            Goal(offsets=OFFSETS),
            a_status(offsets={"orders_in": {"0": 100, "1": 51}}),
            a_status(offsets={"orders_in": {"0": 1000, "1": 49}}),
        ),
        (Goal(offsets=OFFSETS), a_status(offsets=OFFSETS), a_status(offsets={"orders_in": {"0": 100}})),
        (Goal(offsets={"orders_in": {"0": 0}}), a_status(offsets={"orders_in": {"0": 0}}), a_status(offsets={})),
    ],
)
def test_a_goal_is_reached_by_what_it_names_and_by_nothing_less(
    goal: Goal, reached: StreamStatus, not_yet: StreamStatus
) -> None:
    assert outcome(goal, reached) == REACHED
    assert outcome(goal, not_yet) == NOT_YET


def test_everything_named_must_hold_at_the_same_time() -> None:
    goal = Goal(batch=5, max_lag=0)
    assert outcome(goal, a_status(batch=5, lag_records=1)) == NOT_YET
    assert outcome(goal, a_status(batch=4, lag_records=0)) == NOT_YET
    assert outcome(goal, a_status(batch=5, lag_records=0)) == REACHED


@pytest.mark.parametrize("state", ["FAILED", "LOST", "STALLED"])
@pytest.mark.parametrize(
    "goal", [Goal(batches=1), Goal(ended=True), Goal(drained=True), Goal(until=text(-1), never=True)]
)
def test_a_broken_stream_puts_the_goal_out_of_reach_at_once_with_its_reason(goal: Goal, state: str) -> None:
    found = goal.judge(a_status(state, reason="KafkaAway", lag_records=0), at(0))
    assert found.outcome == OUT_OF_REACH
    assert all(part in found.reason for part in ("orders", state, "KafkaAway"))


def test_what_was_committed_before_the_stream_broke_counts() -> None:
    assert outcome(Goal(batch=5), a_status("LOST", batch=5)) == REACHED


@pytest.mark.parametrize("state", ["STOPPED", "FINISHED"])
@pytest.mark.parametrize(
    "goal", [Goal(batch=9), Goal(max_lag=0), Goal(ended=True, batch=9), Goal(until=text(9), never=True)]
)
def test_a_stream_that_ended_before_reaches_nothing_more(goal: Goal, state: str) -> None:
    found = goal.judge(a_status(state, batch=3), at(0))
    assert found.outcome == OUT_OF_REACH
    assert all(part in found.reason for part in ("orders", state, goal.condition))


def test_a_stream_that_was_never_started_is_not_waited_for() -> None:
    found = Goal(batches=1).judge(a_status("NEW"), at(0))
    assert (found.outcome, "orders" in found.reason) == (OUT_OF_REACH, True)


def test_a_moment_that_was_promised_reaches_the_goal_whatever_the_stream_has_done() -> None:
    goal = Goal(until=text(60), never=True)
    assert outcome(goal, a_status(batch=99, lag_records=0), 59) == NOT_YET
    assert outcome(goal, a_status("STARTING"), 60) == REACHED


def test_a_deadline_ends_the_waiting_and_says_what_was_not_reached() -> None:
    goal = Goal(batches=3, deadline=text(60))
    assert outcome(goal, a_status(), 59) == NOT_YET
    late = goal.judge(a_status(), at(60))
    assert late.outcome == TIMEOUT
    assert goal.condition in late.reason
    assert "3 batch" in goal.condition
    assert outcome(goal, a_status(batches_in_run=3), 99) == REACHED


def test_a_goal_that_names_nothing_is_reached_by_nothing() -> None:
    assert outcome(Goal(), a_status(batch=9, lag_records=0)) == NOT_YET


@pytest.mark.parametrize(
    "goal",
    [
        Goal(),
        Goal(started=True),
        Goal(batches=0, max_lag=0, after_batch=-1),
        Goal(offsets=OFFSETS, drained=True, ended=True),
        Goal(never=True, until=text(1), deadline=text(2), batch=3),
    ],
)
def test_a_goal_is_the_same_after_a_trigger_carried_it(goal: Goal) -> None:
    assert Goal.from_dict(json.loads(json.dumps(goal.as_dict()))) == goal


def test_a_condition_of_another_version_is_named_and_never_ignored() -> None:
    with pytest.raises(OtherVersion, match=r"\bmax_age, quiet\b"):
        Goal.from_dict({"started": True, "quiet": True, "max_age": 60})


def test_what_is_not_asked_for_is_not_carried() -> None:
    assert Goal(batches=0).as_dict() == {"batches": 0}


@pytest.mark.parametrize("values", [{"batches": -1}, {"batch": "3"}, {"max_lag": True}, {"batches": 1.5}])
def test_a_number_that_cannot_be_meant_is_refused(values: dict[str, Any]) -> None:
    ((name, value),) = values.items()
    with pytest.raises(BadArgument, match=re.escape(f"{name}={value!r}")):
        Goal(**values)


def test_the_waiting_line_tells_what_is_what_is_waited_for_and_how_long_still() -> None:
    goal = Goal(batch=9, drained=True, deadline=text(90))
    found = goal.judge(a_status(batch=3), at(0))
    assert waiting_line(found, goal, at(0)) == (
        "orders is RUNNING, batch 3 committed (waiting for batch 9 committed and all input committed, 1 min 30 s left)"
    )
