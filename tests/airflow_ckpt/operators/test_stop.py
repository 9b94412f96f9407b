"""Stop: gracefully, or by force when that was allowed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_ckpt.operators.stop import SparkStreamStopOperator
from tests.airflow_ckpt.operators.fakes import Play, a_context, deferred, event, make
from tests.airflow_ckpt.supervision.samples import a_status

pytestmark = pytest.mark.unit


def test_a_stop_waits_for_the_end_of_the_batch(play: Play) -> None:
    control = play("RUNNING", "RUNNING", "STOPPED")
    found = make(SparkStreamStopOperator, reason="maintenance").execute(a_context())
    assert (found["state"], control.did) == ("STOPPED", [("stop", "maintenance")])


@pytest.mark.parametrize("state", ["NEW", "STOPPED", "FINISHED", "FAILED", "LOST"])
def test_a_stream_that_does_not_run_is_left_as_it_is(play: Play, state: str, slept: list[float]) -> None:
    play(state)
    assert make(SparkStreamStopOperator).execute(a_context())["state"] == state
    assert slept == []


def test_a_driver_that_does_not_stop_in_time_is_killed(play: Play) -> None:
    control = play("RUNNING")
    operator, context = make(SparkStreamStopOperator, kill_after="2 minutes", deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    left = datetime.fromisoformat(trigger.goal["deadline"]) - datetime.now(UTC)
    assert timedelta(minutes=1) < left <= timedelta(minutes=2)
    found = operator.on_event(context, event(trigger, a_status("RUNNING"), "timeout"))
    assert (found["state"], [done[0] for done in control.did]) == ("STOPPED", ["stop", "kill"])


def test_a_stalled_driver_is_killed_at_once_and_the_log_says_why(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    control = play("RUNNING", a_status("STALLED", reason="batch 7 hangs"))
    operator, told = make(SparkStreamStopOperator), []
    monkeypatch.setattr(operator.log, "warning", lambda text, *args: told.append(text % args))
    assert operator.execute(a_context())["state"] == "STOPPED"
    assert [done[0] for done in control.did] == ["stop", "kill"]
    assert [line for line in told if "batch 7 hangs" in line]
    assert not [line for line in told if str(operator.kill_after) in line]


def test_a_driver_is_never_killed_if_that_was_ruled_out(play: Play) -> None:
    control = play("RUNNING")
    operator, context = make(SparkStreamStopOperator, kill_after=None, timeout=60, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    with pytest.raises(AirflowFailException):
        operator.on_event(context, event(trigger, a_status("RUNNING"), "timeout"))
    assert [done[0] for done in control.did] == ["stop"]


def test_a_driver_that_is_lost_while_it_stops_has_not_stopped(play: Play) -> None:
    play("RUNNING", a_status("LOST", reason="gone"))
    with pytest.raises(AirflowFailException, match="LOST"):
        make(SparkStreamStopOperator).execute(a_context())


def test_a_kill_that_did_not_end_the_driver_is_not_success(play: Play) -> None:
    control = play("RUNNING")
    control.after_kill = "RUNNING"
    operator, context = make(SparkStreamStopOperator, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    with pytest.raises(AirflowFailException):
        operator.on_event(context, event(trigger, a_status("RUNNING"), "timeout"))
