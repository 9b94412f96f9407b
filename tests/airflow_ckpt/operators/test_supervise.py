"""Supervise: submit, watch and resume until a goal is reached."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_ckpt.exceptions import CkptError, GivenUp, PreflightRefused, StillAlive
from airflow_ckpt.operators.supervise import SparkStreamSuperviseOperator
from airflow_ckpt.streams.preflight import PreflightFinding
from tests.airflow_ckpt.operators.fakes import LATER, NOW, Play, a_context, deferred, event, make
from tests.airflow_ckpt.supervision.samples import a_status

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("until", "goal"),
    [
        ("drained", {"drained": True, "ends": {"orders_in": {"0": 100}}}),
        ("finished", {"ended": True}),
        (None, {"ended": True}),
        (12, {"batch": 12}),
        ({"orders_in": {0: 5}}, {"offsets": {"orders_in": {"0": 5}}}),
    ],
)
def test_a_supervision_ends_with_what_was_asked_for(play: Play, until: Any, goal: dict[str, Any]) -> None:
    control = play("STARTING")
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until=until), a_context()
    trigger = deferred(lambda: operator.execute(context))
    assert (trigger.goal, control.did) == (goal, [("submit", "dag run", ())])
    assert operator.on_event(context, event(trigger, a_status("FINISHED")))["state"] == "FINISHED"


def test_a_supervision_restarts_a_broken_stream_after_the_pause_and_goes_on_watching(play: Play) -> None:
    told: list[str] = []
    operator = make(
        SparkStreamSuperviseOperator,
        deferrable=True,
        until=timedelta(hours=1),
        notify=lambda c: told.append(c["ckpt"]["event"]),
    )
    control, context = play("STARTING"), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses, control.plans = [a_status("FAILED", reason="away")], [LATER]
    pause = deferred(lambda: operator.on_event(context, event(watch, a_status("FAILED"), "failed")))
    assert (pause.pause, pause.then, control.did[1:]) == (True, "restart", [])
    # Another process goes on after the pause: it has the task state store and nothing else.
    another = make(
        SparkStreamSuperviseOperator,
        deferrable=True,
        until=timedelta(hours=1),
        notify=lambda c: told.append(c["ckpt"]["event"]),
    )
    control.plans, control.statuses = [NOW], [a_status("FAILED"), a_status("STARTING")]
    again = deferred(lambda: another.on_event(context, event(pause, None)))
    assert control.did[1:] == [("resume", "FAILED", ())]
    assert (again.goal, again.then) == (watch.goal, "look_again")
    assert told == ["failed", "resumed"]


def test_a_supervision_in_a_worker_restarts_until_the_strategy_gives_up(play: Play, slept: list[float]) -> None:
    given_up = GivenUp("orders has failed for good")
    control = play("FAILED", plans=[LATER, NOW, LATER, NOW, LATER, NOW, given_up])
    told: list[str] = []
    operator = make(SparkStreamSuperviseOperator, notify=lambda c: told.append(c["ckpt"]["event"]))
    with pytest.raises(AirflowFailException, match=str(given_up)):
        operator.execute(a_context())
    assert [done[0] for done in control.did] == ["submit", "resume", "resume", "resume"]
    assert slept == [10.0] * 3
    assert told == ["failed", "resumed"] * 3 + ["failed", "given_up"]


def test_a_supervision_waits_out_an_outage_and_uses_no_restart_for_it(play: Play, slept: list[float]) -> None:
    now = datetime.now(UTC)
    control = play("STARTING", plans=[NOW])
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until=timedelta(hours=1)), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses = [a_status("FAILED", broken_since=now.isoformat())]
    away = PreflightFinding("kafka_unreachable", "BrokersDown", "r", "h", temporary=True)
    control.refusal = PreflightRefused("orders", [away])
    pause = deferred(lambda: operator.on_event(context, event(watch, a_status("FAILED"), "failed")))
    assert (pause.pause, pause.then) == (True, "restart")

    control.statuses = [a_status("FAILED", broken_since=(now - timedelta(minutes=16)).isoformat())]
    with pytest.raises(CkptError, match="BrokersDown"):
        operator.on_event(context, event(pause, None))

    control.refusal, control.statuses = None, [a_status("FAILED"), a_status("STARTING")]
    assert deferred(lambda: operator.on_event(context, event(pause, None))).goal == watch.goal


def test_a_supervision_waits_for_the_end_of_a_driver_that_it_has_killed(play: Play, slept: list[float]) -> None:
    now = datetime.now(UTC)
    control = play("STARTING", plans=[NOW])
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until=timedelta(hours=1)), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses = [a_status("STALLED", broken_since=now.isoformat())]
    control.refusal = StillAlive("its node does not answer")
    pause = deferred(lambda: operator.on_event(context, event(watch, a_status("STALLED"), "failed")))
    assert (pause.pause, pause.then) == (True, "restart")

    control.statuses = [a_status("STALLED", broken_since=(now - timedelta(minutes=16)).isoformat())]
    with pytest.raises(StillAlive):
        operator.on_event(context, event(pause, None))


def test_a_supervision_gives_a_stream_that_broke_again_its_pause(play: Play) -> None:
    control = play("STARTING")
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until="drained"), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses, control.plans = [a_status("FAILED")], [LATER]
    pause = deferred(lambda: operator.on_event(context, event(watch, a_status("FAILED"), "failed")))
    assert deferred(lambda: operator.on_event(context, event(pause, None))).then == "restart"
    assert control.did[1:] == []


def test_a_stream_that_was_restarted_by_another_task_is_watched_and_not_restarted(play: Play) -> None:
    control = play("RUNNING", plans=[LATER])
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until="drained"), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses = [a_status("RUNNING")]
    again = deferred(lambda: operator.on_event(context, event(watch, a_status("LOST"), "failed")))
    assert (again.goal, again.then, control.did[1:]) == (watch.goal, "look_again", [])


def test_a_stream_that_a_user_stopped_before_the_goal_fails_the_supervision(play: Play) -> None:
    play("STOPPED")
    with pytest.raises(AirflowFailException, match="STOPPED"):
        make(SparkStreamSuperviseOperator, until="drained").execute(a_context())


def test_a_supervision_of_a_stream_that_is_stopped_in_the_pause_restarts_nothing_and_sends_no_event_of_a_restart(
    play: Play, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for seen_in_time in (True, False):
        control = play(
            "STARTING",
            "FAILED",
            "FAILED",
            *(["STOPPED"] if seen_in_time else ["FAILED", "STOPPED"]),
            plans=[LATER, NOW],
        )
        monkeypatch.setattr(control, "resume", lambda *_, **__: a_status("STOPPED"))
        operator = make(SparkStreamSuperviseOperator, until="drained", notify=lambda c: told.append(c["ckpt"]["event"]))
        with pytest.raises(AirflowFailException, match="STOPPED"):
            operator.execute(a_context())
    assert told == ["failed", "failed"]


def test_a_supervision_stops_the_stream_when_it_is_done_if_it_was_told_to(play: Play) -> None:
    control = play("RUNNING", a_status("IDLE", lag_records=0), "RUNNING", "STOPPED")
    found = make(SparkStreamSuperviseOperator, until="drained", when_done="stop").execute(a_context())
    assert (found["state"], [done[0] for done in control.did]) == ("STOPPED", ["submit", "stop"])


def test_a_supervision_leaves_the_stream_running_when_it_is_done(play: Play) -> None:
    control = play("RUNNING", a_status("IDLE", lag_records=0))
    assert make(SparkStreamSuperviseOperator, until="drained").execute(a_context())["state"] == "IDLE"
    assert [done[0] for done in control.did] == ["submit"]


@pytest.mark.parametrize("state", ["STOPPED", "FINISHED", "NEW"])
def test_a_supervision_that_may_start_nothing_starts_nothing(play: Play, state: str) -> None:
    control = play(state)
    with pytest.raises(AirflowFailException, match=f"orders is {state}"):
        make(SparkStreamSuperviseOperator, start=False).execute(a_context())
    assert control.did == []


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "LOST"])
def test_a_supervision_that_may_start_nothing_looks_after_what_is_meant_to_run(play: Play, state: str) -> None:
    control = play(state, plans=[LATER])
    deferred(lambda: make(SparkStreamSuperviseOperator, start=False, deferrable=True).execute(a_context()))
    assert control.did == [("submit", "dag run", ())]
