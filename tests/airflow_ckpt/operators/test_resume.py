"""Resume: whom it restarts, when, and how often."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_ckpt.exceptions import GivenUp
from airflow_ckpt.operators.resume import SparkStreamResumeOperator
from airflow_ckpt.operators.waiting import SHORT_PAUSE
from tests.airflow_ckpt.operators.fakes import LATER, NOTHING, NOW, SOON, Play, a_context, deferred, event, make
from tests.airflow_ckpt.supervision.samples import a_status

pytestmark = pytest.mark.unit


def test_a_healthy_stream_is_left_alone(play: Play) -> None:
    control = play("RUNNING", plans=[NOTHING])
    found = make(SparkStreamResumeOperator).execute(a_context())
    assert (found["state"], found["resumed"], control.did) == ("RUNNING", False, [])


def test_a_broken_stream_is_resumed_and_its_next_batch_is_waited_for(play: Play) -> None:
    broken, told = a_status("FAILED", batch=7, reason="away"), []
    control = play(broken, broken, "STARTING", plans=[NOW])
    operator = make(
        SparkStreamResumeOperator, deferrable=True, allow=["ledger"], notify=lambda c: told.append(c["ckpt"]["event"])
    )
    context = a_context()
    trigger = deferred(lambda: operator.execute(context))
    assert (trigger.goal, trigger.then, trigger.pause) == ({"started": True, "after_batch": 7}, "has_moved", False)
    assert (control.did, told) == ([("resume", "FAILED", ("ledger",))], ["failed"])
    found = operator.on_event(context, event(trigger, a_status("RUNNING", batch=8)))
    assert (found["batch"], found["resumed"], told) == (8, True, ["failed", "resumed"])


def test_a_stream_that_never_committed_is_waited_for_until_it_does(play: Play) -> None:
    lost = a_status("LOST", batch=None)
    play(lost, lost, a_status("STARTING", batch=None), plans=[NOW])
    trigger = deferred(lambda: make(SparkStreamResumeOperator, deferrable=True).execute(a_context()))
    assert trigger.goal["after_batch"] == -1


def test_the_pause_of_the_strategy_is_spent_in_the_triggerer(play: Play) -> None:
    control = play("FAILED", plans=[LATER])
    operator, context = make(SparkStreamResumeOperator, deferrable=True), a_context()
    before = datetime.now(UTC)
    trigger = deferred(lambda: operator.execute(context))
    assert (trigger.pause, trigger.then, control.did) == (True, "pause_is_over", [])
    assert before <= datetime.fromisoformat(trigger.goal["until"]) - timedelta(seconds=10) <= datetime.now(UTC)
    control.plans, control.statuses = [NOW], [a_status("FAILED"), a_status("STARTING")]
    assert deferred(lambda: operator.on_event(context, event(trigger, None))).then == "has_moved"
    assert control.did == [("resume", "FAILED", ())]


def test_a_short_pause_is_not_worth_the_way_to_the_triggerer(play: Play, slept: list[float]) -> None:
    """Airflow's scheduler fails a task that is queued again before the executor has reported that it left."""
    control = play("FAILED", "FAILED", "STARTING", plans=[SOON, NOW])
    trigger = deferred(lambda: make(SparkStreamResumeOperator, deferrable=True).execute(a_context()))
    assert (slept, control.did, trigger.pause) == ([SHORT_PAUSE], [("resume", "FAILED", ())], False)


def test_the_pause_of_the_strategy_is_spent_in_the_worker(play: Play, slept: list[float]) -> None:
    control = play("FAILED", "FAILED", a_status("RUNNING", batch=1), plans=[LATER, NOW])
    assert make(SparkStreamResumeOperator).execute(a_context())["resumed"]
    assert (slept, control.did) == ([10.0], [("resume", "FAILED", ())])


def test_a_stream_that_another_task_resumed_during_the_pause_is_left_alone(play: Play) -> None:
    control = play("FAILED", "RUNNING", plans=[LATER, NOTHING])
    found = make(SparkStreamResumeOperator).execute(a_context())
    assert (found["resumed"], control.did) == (False, [])


def test_a_stream_that_broke_again_during_the_pause_gets_its_pause(play: Play, slept: list[float]) -> None:
    control = play("FAILED", "FAILED", "FAILED", a_status("RUNNING", batch=1), plans=[LATER, LATER, NOW])
    assert make(SparkStreamResumeOperator).execute(a_context())["resumed"]
    assert (slept, control.did) == ([10.0, 10.0], [("resume", "FAILED", ())])


def test_a_stream_that_breaks_again_before_its_first_commit_gets_what_the_strategy_allows(play: Play) -> None:
    control = play("FAILED", plans=[NOW, NOW, NOW, NOW, GivenUp("all 3 restarts are used")])
    told: list[str] = []
    operator = make(SparkStreamResumeOperator, notify=lambda c: told.append(c["ckpt"]["event"]))
    with pytest.raises(AirflowFailException, match=r"\b3\b"):
        operator.execute(a_context())
    assert [done[0] for done in control.did] == ["resume", "resume"]
    assert told[-1] == "given_up"


def test_a_resume_that_may_restart_once_leaves_the_rest_to_the_next_one(play: Play) -> None:
    control = play("FAILED", plans=[NOW])
    with pytest.raises(AirflowFailException, match=r"orders.*FAILED"):
        make(SparkStreamResumeOperator, restarts=1).execute(a_context())
    assert [done[0] for done in control.did] == ["resume"]


def test_a_resume_that_is_not_through_in_time_fails(play: Play) -> None:
    play("FAILED", "FAILED", "STARTING", plans=[NOW])
    operator, context = make(SparkStreamResumeOperator, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    with pytest.raises(AirflowFailException):
        operator.on_event(context, event(trigger, a_status("STARTING"), "timeout"))
