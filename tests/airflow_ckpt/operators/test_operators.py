"""The operators' steps, in a worker and through the triggerer: what they ask of the stream, wait for, and say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.hooks.connections import BadConnection
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.notifications import tell as tell_module
from airflow_ckpt.operators import verify as verify_module
from airflow_ckpt.operators.base import HISTORY_KEY, SHORT_PAUSE, STATUS_KEY, StreamOperator
from airflow_ckpt.operators.resume import SparkStreamResumeOperator
from airflow_ckpt.operators.stop import SparkStreamStopOperator
from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
from airflow_ckpt.operators.supervise import SparkStreamSuperviseOperator
from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
from airflow_ckpt.runners.base import Handle
from airflow_ckpt.sensors.progress import CheckpointProgressSensor
from airflow_ckpt.streams.control import GivenUp, ResumePlan
from airflow_ckpt.streams.goal import Outcome
from airflow_ckpt.streams.preflight import PreflightFinding, PreflightRefused
from airflow_ckpt.streams.restart import FixedDelay
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from ckpt_stream.errors import LedgerLost, SinkError
from tests.airflow_ckpt.operators.fakes import FakeControl, a_context
from tests.airflow_ckpt.streams.samples import a_status, a_stream

pytestmark = pytest.mark.unit

Play = Callable[..., FakeControl]
NOW = ResumePlan("start", "restart 1 of 3")
SOON = ResumePlan("wait", "restart 1 of 3", SHORT_PAUSE)
LATER = ResumePlan("wait", "restart 1 of 3", 10.0)
NOTHING = ResumePlan("none", "nothing to do")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """The stream shows these statuses to whoever connects to it."""

    def play(*statuses: StreamStatus | str, plans: Any = ()) -> FakeControl:
        control = FakeControl(*statuses)
        control.plans = list(plans)
        monkeypatch.setattr(StreamHook, "get_conn", lambda self: control)
        return control

    return play


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def make(kind: type[StreamOperator], **values: Any) -> Any:
    return kind(**{"task_id": "task", "stream": a_stream(), "poll_interval": 7, **values})


def deferred(call: Callable[[], Any]) -> CheckpointProgressTrigger:
    """The trigger that the operator waits with."""
    with pytest.raises(TaskDeferred) as caught:
        call()
    assert caught.value.method_name == "on_event"
    trigger = caught.value.trigger
    assert isinstance(trigger, CheckpointProgressTrigger)
    return trigger


def event(trigger: CheckpointProgressTrigger, status: StreamStatus | None, outcome: str = "reached") -> dict[str, Any]:
    """What the trigger would send, after its way through the database."""
    found = trigger._event(outcome, status.line() if status else "", status).payload
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again


# --- submit ------------------------------------------------------------------------------------------------------------


def test_a_submit_that_waits_for_nothing_returns_the_status(play: Play) -> None:
    control = play("STARTING")
    found = make(SparkStreamSubmitOperator, wait_for="nothing", allow=["data_lost"]).execute(a_context())
    assert found["state"] == "STARTING"
    assert control.did == [("submit", "dag run", ("data_lost",))]


def test_a_submit_waits_in_the_worker_until_the_driver_runs(play: Play, slept: list[float]) -> None:
    play("STARTING", "STARTING", "STARTING", "RUNNING")
    found = make(SparkStreamSubmitOperator).execute(a_context())
    assert (found["state"], slept) == ("RUNNING", [7.0, 7.0])


def test_a_submit_waits_in_the_triggerer_until_the_driver_runs(play: Play) -> None:
    play("STARTING")
    operator, context = make(SparkStreamSubmitOperator, deferrable=True, on_kill_action="stop"), a_context()
    trigger = deferred(lambda: operator.execute(context))
    _, kwargs = trigger.serialize()
    assert kwargs == {
        "stream": a_stream().as_dict(),
        "goal": {"started": True},
        "then": "has_started",
        "poll_interval": 7.0,
        "on_kill_action": "stop",
        "by": "dag.task run",
        "pause": False,
        "handle": None,
        "result": None,
    }
    assert operator.on_event(context, event(trigger, a_status("RUNNING")))["state"] == "RUNNING"


def test_a_submit_that_waits_for_a_batch_waits_for_the_start_first(play: Play) -> None:
    play("STARTING")
    operator, context = make(SparkStreamSubmitOperator, deferrable=True, wait_for="first_batch"), a_context()
    first = deferred(lambda: operator.execute(context))
    second = deferred(lambda: operator.on_event(context, event(first, a_status("RUNNING"))))
    assert (second.goal, second.then) == ({"batches": 1}, "has_batch")
    assert operator.on_event(context, event(second, a_status(batch=0)))["batch"] == 0


def test_what_has_happened_already_is_not_waited_for_in_the_triggerer(play: Play, slept: list[float]) -> None:
    play("STARTING", "RUNNING")
    assert make(SparkStreamSubmitOperator, deferrable=True).execute(a_context())["state"] == "RUNNING"
    play("STARTING", a_status("FAILED", reason="no such topic"))
    with pytest.raises(AirflowFailException, match="no such topic"):
        make(SparkStreamSubmitOperator, deferrable=True).execute(a_context())
    assert slept == []


def test_a_look_that_fails_before_the_wait_is_left_to_the_triggerer(play: Play) -> None:
    control = play("STARTING")
    looks = iter([a_status("STARTING")])

    def status() -> StreamStatus:
        for found in looks:
            return found
        raise OSError("S3 is away")

    control.status = status  # type: ignore[method-assign]
    operator = make(SparkStreamSubmitOperator, deferrable=True)
    assert deferred(lambda: operator.execute(a_context())).then == "has_started"


@pytest.mark.parametrize("state", ["FAILED", "LOST", "STALLED"])
def test_a_stream_that_breaks_while_it_starts_fails_the_task_for_good_with_its_reason(play: Play, state: str) -> None:
    play("STARTING", a_status(state, reason="no such topic"))
    with pytest.raises(AirflowFailException, match=f"orders is {state}: no such topic"):
        make(SparkStreamSubmitOperator).execute(a_context())


def test_a_stream_that_breaks_while_nobody_holds_a_worker_fails_the_task_for_good(play: Play) -> None:
    play("STARTING")
    operator, context = make(SparkStreamSubmitOperator, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    broken = {**event(trigger, a_status("FAILED"), "failed"), "reason": "orders is FAILED: no such topic"}
    with pytest.raises(AirflowFailException, match="no such topic"):
        operator.on_event(context, broken)


def test_a_time_limit_goes_with_the_goal(play: Play) -> None:
    play("STARTING")
    trigger = deferred(
        lambda: make(SparkStreamSubmitOperator, deferrable=True, timeout=timedelta(minutes=5)).execute(a_context())
    )
    left = datetime.fromisoformat(trigger.goal["deadline"]) - datetime.now(UTC)
    assert timedelta(minutes=4) < left <= timedelta(minutes=5)


@pytest.mark.parametrize(
    "refusal",
    [PreflightRefused("orders", [PreflightFinding("data_lost", "w", "r", "h")]), LedgerLost("found", "risk", "helps")],
)
def test_what_no_retry_can_cure_is_not_retried(play: Play, refusal: Exception) -> None:
    play().refusal = refusal
    with pytest.raises(AirflowFailException, match=type(refusal).__name__):
        make(SparkStreamSubmitOperator).execute(a_context())


def test_somebody_is_told_of_a_refusal_once(play: Play) -> None:
    play().refusal = LedgerLost("found", "risk", "helps")
    told: list[str] = []
    with pytest.raises(AirflowFailException):
        make(SparkStreamSubmitOperator, notify=lambda c: told.append(c["ckpt"]["event"])).execute(a_context())
    assert told == ["given_up"]


@pytest.mark.parametrize(
    "refusal",
    [
        PreflightRefused("orders", [PreflightFinding("kafka_unreachable", "w", "r", "h", passing=True)]),
        SinkError("Lane 0 of the ledger was not read within 30 s."),
    ],
)
def test_what_may_pass_is_left_to_airflow_and_told_when_no_try_is_left(play: Play, refusal: Exception) -> None:
    play().refusal = refusal
    told: list[str] = []
    operator, context = make(SparkStreamSubmitOperator, notify=lambda c: told.append(c["ckpt"]["event"])), a_context()
    context["ti"].max_tries = 1
    for tries, events in ((1, []), (2, ["given_up"])):
        context["ti"].try_number = tries
        with pytest.raises(CkptError, match=type(refusal).__name__) as caught:
            operator.execute(context)
        assert not isinstance(caught.value, AirflowFailException)
        assert told == events


def test_what_may_pass_beside_what_does_not_is_final(play: Play) -> None:
    away, lost = (
        PreflightFinding(kind, "w", "r", "h", passing=p) for kind, p in (("ledger", True), ("data_lost", False))
    )
    play().refusal = PreflightRefused("orders", [away, lost])
    with pytest.raises(AirflowFailException):
        make(SparkStreamSubmitOperator).execute(a_context())


def test_what_a_retry_may_cure_is_left_to_airflow(play: Play) -> None:
    play().refusal = BadConnection("kafka_default was not found")
    with pytest.raises(BadConnection):
        make(SparkStreamSubmitOperator).execute(a_context())


def test_a_trigger_that_could_not_look_is_left_to_airflow(play: Play) -> None:
    play("STARTING")
    operator, context = make(SparkStreamSubmitOperator, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    with pytest.raises(CkptError, match="could not be looked at: OSError: away") as caught:
        operator.on_event(context, {**event(trigger, None, "error"), "reason": "OSError: away"})
    assert not isinstance(caught.value, AirflowFailException)


# --- resume ------------------------------------------------------------------------------------------------------------


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
    trigger = deferred(lambda: operator.execute(context))
    left = datetime.fromisoformat(trigger.goal["until"]) - datetime.now(UTC)
    assert (trigger.pause, trigger.then, control.did) == (True, "pause_is_over", [])
    assert timedelta(seconds=9) < left <= timedelta(seconds=10)
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


def test_a_stream_that_somebody_else_resumed_during_the_pause_is_left_alone(play: Play) -> None:
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
    with pytest.raises(AirflowFailException, match="all 3 restarts are used"):
        operator.execute(a_context())
    assert [done[0] for done in control.did] == ["resume", "resume"]
    assert told[-1] == "given_up"


def test_a_resume_that_may_restart_once_leaves_the_rest_to_the_next_one(play: Play) -> None:
    control = play("FAILED", plans=[NOW])
    with pytest.raises(AirflowFailException, match="orders is FAILED"):
        make(SparkStreamResumeOperator, restarts=1).execute(a_context())
    assert [done[0] for done in control.did] == ["resume"]


def test_a_resume_that_is_not_through_in_time_fails(play: Play) -> None:
    play("FAILED", "FAILED", "STARTING", plans=[NOW])
    operator, context = make(SparkStreamResumeOperator, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    with pytest.raises(AirflowFailException):
        operator.on_event(context, event(trigger, a_status("STARTING"), "timeout"))


# --- supervise ---------------------------------------------------------------------------------------------------------


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
    # Whoever goes on after the pause is another process: it has the task state store and nothing else.
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
    with pytest.raises(AirflowFailException, match="orders has failed for good"):
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
    away = PreflightFinding("kafka_unreachable", "No broker answers.", "r", "h", passing=True)
    control.refusal = PreflightRefused("orders", [away])
    pause = deferred(lambda: operator.on_event(context, event(watch, a_status("FAILED"), "failed")))
    assert (pause.pause, pause.then) == (True, "restart")

    control.statuses = [a_status("FAILED", broken_since=(now - timedelta(minutes=16)).isoformat())]
    with pytest.raises(CkptError, match="No broker answers"):
        operator.on_event(context, event(pause, None))

    control.refusal, control.statuses = None, [a_status("FAILED"), a_status("STARTING")]
    assert deferred(lambda: operator.on_event(context, event(pause, None))).goal == watch.goal


def test_a_supervision_gives_a_stream_that_broke_again_its_pause(play: Play) -> None:
    control = play("STARTING")
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until="drained"), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses, control.plans = [a_status("FAILED")], [LATER]
    pause = deferred(lambda: operator.on_event(context, event(watch, a_status("FAILED"), "failed")))
    assert deferred(lambda: operator.on_event(context, event(pause, None))).then == "restart"
    assert control.did[1:] == []


def test_a_stream_that_was_restarted_by_somebody_else_is_watched_and_not_restarted(play: Play) -> None:
    control = play("RUNNING", plans=[LATER])
    operator, context = make(SparkStreamSuperviseOperator, deferrable=True, until="drained"), a_context()
    watch = deferred(lambda: operator.execute(context))
    control.statuses = [a_status("RUNNING")]
    again = deferred(lambda: operator.on_event(context, event(watch, a_status("LOST"), "failed")))
    assert (again.goal, again.then, control.did[1:]) == (watch.goal, "look_again", [])


def test_a_stream_that_somebody_stopped_before_the_goal_fails_the_supervision(play: Play) -> None:
    play("STOPPED")
    with pytest.raises(AirflowFailException, match="STOPPED before it reached"):
        make(SparkStreamSuperviseOperator, until="drained").execute(a_context())


def test_a_supervision_stops_the_stream_when_it_is_done_if_it_was_told_to(play: Play) -> None:
    control = play("RUNNING", a_status("IDLE", lag_records=0), "RUNNING", "STOPPED")
    found = make(SparkStreamSuperviseOperator, until="drained", when_done="stop").execute(a_context())
    assert (found["state"], [done[0] for done in control.did]) == ("STOPPED", ["submit", "stop"])


def test_a_supervision_leaves_the_stream_running_when_it_is_done(play: Play) -> None:
    control = play("RUNNING", a_status("IDLE", lag_records=0))
    assert make(SparkStreamSuperviseOperator, until="drained").execute(a_context())["state"] == "IDLE"
    assert [done[0] for done in control.did] == ["submit"]


# --- stop --------------------------------------------------------------------------------------------------------------


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


# --- the sensor --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "goal"),
    [
        ({"batches": 3}, {"batches": 3}),
        ({"batches": "3"}, {"batches": 3}),
        ({"batch": 0}, {"batch": 0}),
        ({"max_lag": 0}, {"max_lag": 0}),
        ({"drained": True}, {"drained": True, "ends": {"orders_in": {"0": 100}}}),
        ({"offsets": {"orders_in": {0: 5}}}, {"offsets": {"orders_in": {"0": 5}}}),
        ({"batches": 1, "max_lag": 5}, {"batches": 1, "max_lag": 5}),
    ],
)
def test_the_sensor_waits_for_everything_that_it_was_given(play: Play, values: dict[str, Any], goal: Any) -> None:
    play("RUNNING")
    trigger = deferred(lambda: make(CheckpointProgressSensor, deferrable=True, **values).execute(a_context()))
    assert trigger.goal == goal


def test_the_sensor_fails_at_once_when_the_stream_has_failed(play: Play, slept: list[float]) -> None:
    play(a_status("FAILED", reason="LedgerLost: batch 3"))
    told: list[Any] = []
    operator = make(CheckpointProgressSensor, batches=3, notify=lambda c: told.append(c["ckpt"]))
    with pytest.raises(AirflowFailException, match="orders is FAILED: LedgerLost: batch 3"):
        operator.execute(a_context())
    assert (slept, told[0]["event"], told[0]["stream"]) == ([], "failed", "orders")


def test_a_sensor_that_waits_for_nothing_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(CkptError, match="needs one of batches, batch, offsets, max_lag, drained"):
        make(CheckpointProgressSensor)


# --- bad arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        (SparkStreamSubmitOperator, {"stream": "orders"}, "must be a Stream, not of type str"),
        (SparkStreamSubmitOperator, {"wait_for": "ever"}, "nothing, started, first_batch"),
        (SparkStreamSubmitOperator, {"on_kill_action": "panic"}, "leave, stop, kill"),
        (SparkStreamSubmitOperator, {"timeout": "soon"}, "timeout"),
        (SparkStreamSuperviseOperator, {"until": "drayned"}, "drained"),
        (SparkStreamSuperviseOperator, {"when_done": "kill"}, "leave, stop"),
        (SparkStreamStopOperator, {"kill_after": "soon"}, "kill_after"),
        (ExactlyOnceVerifyOperator, {"depth": "deep"}, "ledger, sink, recompute"),
        (ExactlyOnceVerifyOperator, {"since": "yesterday"}, "neither last nor start nor a batch number"),
        (SparkStreamResumeOperator, {"restarts": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(CkptError, match=words):
        make(kind, **values)


@pytest.mark.parametrize(
    ("name", "rendered", "words"),
    [
        ("depth", "deep", "ledger, sink, recompute"),
        ("since", "yesterday", "neither last nor start nor a batch number"),
        ("since", "{{ never rendered }}", "was not rendered"),
    ],
)
def test_a_form_that_asks_for_what_there_is_not_is_refused_when_the_task_runs(
    play: Play, name: str, rendered: str, words: str
) -> None:
    play("RUNNING")
    operator = make(ExactlyOnceVerifyOperator, **{name: "{{ params.wish }}"})
    setattr(operator, name, rendered)
    with pytest.raises(CkptError, match=words):
        operator.execute(a_context())


def test_where_a_verification_begins_can_come_from_a_form(play: Play) -> None:
    operator = make(ExactlyOnceVerifyOperator, since="{{ params.wish }}")
    for text, after in (("7", 6), ("0", None), ("start", None)):
        operator.since = text
        operator._check()
        assert operator._after(None) == after


def test_only_the_newest_verdicts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_module, "KEEP_VERDICTS", 2)
    files = FsspecFiles(str(tmp_path))
    for name in ("20260101T1", "20260101T2", "20260101T3"):
        for kind in ("json", "html"):
            files.write(f"_ckpt/verdicts/{name}.{kind}", "x")
    files.write("_ckpt/verdicts/0a1b2c.result", "of a job that runs")
    make(ExactlyOnceVerifyOperator)._prune(SimpleNamespace(sources=SimpleNamespace(files=files)))
    kept = ["0a1b2c.result"] + [f"20260101T{n}.{kind}" for n in (2, 3) for kind in ("html", "json")]
    assert files.names("_ckpt/verdicts") == kept


@pytest.mark.parametrize(("verdict", "said"), [("violated", "violated"), ("unknown", "unverified")])
def test_a_verdict_that_is_not_clean_is_told_and_counted_once(
    monkeypatch: pytest.MonkeyPatch, verdict: str, said: str
) -> None:
    told, counted = [], []
    monkeypatch.setattr(tell_module, "count", lambda event, stream: counted.append((event, stream)))
    operator = make(ExactlyOnceVerifyOperator, notify=lambda c: told.append(c["ckpt"]["event"]))
    with pytest.raises(AirflowFailException, match=f"the verdict is {verdict}: one is there twice"):
        operator._object(a_context(), verdict, {"findings": [{"what": "one is there twice"}]})
    assert (told, counted) == ([said], [(said, "orders")])


# --- ended by hand -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "did"), [("leave", []), ("stop", [("stop", "the Airflow task was ended")]), ("kill", [("kill", 0)])]
)
def test_a_task_that_is_ended_does_to_the_stream_what_it_was_told(play: Play, action: str, did: Any) -> None:
    control = play("RUNNING")
    operator = make(SparkStreamSubmitOperator, on_kill_action=action, wait_for="nothing")
    operator.execute(a_context())
    control.did.clear()
    operator.on_kill()
    assert control.did == did


def test_a_task_that_is_ended_before_it_began_does_nothing(play: Play) -> None:
    control = play("RUNNING")
    make(SparkStreamSubmitOperator, on_kill_action="kill").on_kill()
    assert control.did == []


def job_of(control: FakeControl, outcome: str) -> dict[str, Any]:
    """A verification's job that is looked at once, and then so."""
    handle = Handle("process", "id", "token", {})
    control.start_job = lambda order: handle  # type: ignore[attr-defined]
    control.runner = SimpleNamespace(log_tail=lambda handle, lines: "its last line")  # type: ignore[attr-defined]
    control.sources = SimpleNamespace(kafka={"bootstrap.servers": "k:1"}, files=SimpleNamespace(read=lambda _: None))  # type: ignore[attr-defined]
    control.look_at_job = lambda *_: Outcome(outcome, "the job is RUNNING, and was not over in time")  # type: ignore[attr-defined]
    return handle.as_dict()


def test_a_job_that_is_not_over_in_time_does_not_go_on_beside_the_next_one(play: Play) -> None:
    control = play("RUNNING")
    job_of(control, "timeout")
    with pytest.raises(CkptError, match="gave no result"):
        make(ExactlyOnceVerifyOperator, depth="recompute").execute(a_context())
    assert control.did == [("end_job", "token")]


def test_a_verification_that_is_ended_ends_its_job_and_leaves_the_stream(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = play("RUNNING")
    job_of(control, "waiting")
    operator = make(ExactlyOnceVerifyOperator, depth="recompute")

    def interrupt(_: float) -> None:
        operator.on_kill()
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        operator.execute(a_context())
    assert control.did == [("end_job", "token")]


@pytest.mark.parametrize("state", ["STOPPED", "FINISHED", "NEW"])
def test_a_supervision_that_may_start_nothing_starts_nothing(play: Play, state: str) -> None:
    control = play(state)
    with pytest.raises(AirflowFailException, match=f"orders is {state}.*starts nothing"):
        make(SparkStreamSuperviseOperator, start=False).execute(a_context())
    assert control.did == []


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "LOST"])
def test_a_supervision_that_may_start_nothing_looks_after_what_is_meant_to_run(play: Play, state: str) -> None:
    control = play(state, plans=[LATER])
    deferred(lambda: make(SparkStreamSuperviseOperator, start=False, deferrable=True).execute(a_context()))
    assert control.did == [("submit", "dag run", ())]


# --- what people see ---------------------------------------------------------------------------------------------------


def test_the_spark_ui_is_linked_as_soon_as_it_is_known(play: Play) -> None:
    play("STARTING", a_status("RUNNING", ui="http://driver:4040"))
    context = a_context()
    make(SparkStreamSubmitOperator).execute(context)
    assert context["ti"].pushed == {"spark_ui": "http://driver:4040"}


def test_the_states_of_the_stream_are_kept_in_the_task_state_store(play: Play) -> None:
    play("STARTING", a_status("RUNNING", batch=3))
    context = a_context()
    make(SparkStreamSubmitOperator).execute(context)
    store = context["task_state_store"]
    assert [entry["state"] for entry in store[HISTORY_KEY]] == ["STARTING", "RUNNING"]
    assert (store[STATUS_KEY]["state"], store[STATUS_KEY]["batch"]) == ("RUNNING", 3)
    assert json.dumps(store)


def test_an_event_of_the_streams_asset_carries_batch_and_offsets(play: Play) -> None:
    play("STARTING", a_status("RUNNING", batch=3, offsets={"orders_in": {"0": 7}}))
    context = a_context()
    operator = make(SparkStreamSubmitOperator)
    operator.execute(context)
    [outlet] = operator.outlets
    extra = context["outlet_events"][outlet].extra
    assert (extra["batch"], extra["offsets"], extra["state"]) == (3, {"orders_in": {"0": 7}}, "RUNNING")


def test_a_context_without_store_and_events_will_do(play: Play) -> None:
    play("RUNNING")
    context = a_context()
    assert make(SparkStreamSubmitOperator).execute({"ti": context["ti"]})["state"] == "RUNNING"


def test_a_notifier_that_fails_changes_nothing_and_the_next_one_is_called(play: Play) -> None:
    play(a_status("FAILED", batch=7), a_status("FAILED", batch=7), a_status("RUNNING", batch=8), plans=[NOW])
    told: list[str] = []

    def broken(context: Any) -> None:
        raise OSError("the chat is away")

    operator = make(SparkStreamResumeOperator, notify=[broken, lambda c: told.append(c["ckpt"]["event"])])
    assert operator.execute(a_context())["resumed"]
    assert told == ["failed", "resumed"]


class Chat(BaseNotifier):
    """Keeps what it would have posted."""

    template_fields = ("text",)

    def __init__(self, posts: list[str]) -> None:
        super().__init__()
        self.text, self.posts = "{{ ckpt.stream }} {{ ckpt.event }}: {{ ckpt.reason }}", posts

    def notify(self, context: Any) -> None:
        self.posts.append(self.text)


def test_a_notifier_says_of_each_event_its_own_words(play: Play) -> None:
    """Airflow's notifiers render their templates in place, once for all."""
    play("FAILED", plans=[NOW, NOW, GivenUp("all used")])
    posts: list[str] = []
    with pytest.raises(AirflowFailException):
        make(SparkStreamSuperviseOperator, notify=Chat(posts)).execute(a_context())
    assert [post.partition(":")[0] for post in posts] == [
        "orders failed",
        "orders resumed",
        "orders failed",
        "orders given_up",
    ]


# --- secrets -----------------------------------------------------------------------------------------------------------


def test_what_is_deferred_names_connections_and_holds_no_secrets(monkeypatch: pytest.MonkeyPatch, play: Play) -> None:
    play("STARTING")
    stream = a_stream(kafka_conn_id="kafka_prod", checkpoint_conn_id="store")
    trigger = deferred(lambda: make(SparkStreamSubmitOperator, stream=stream, deferrable=True).execute(a_context()))
    text = json.dumps(trigger.serialize())
    assert "kafka_prod" in text
    assert "store" in text
    assert not [word for word in ("password", "secret", "jaas", "bootstrap") if word in text]


# --- DAGs --------------------------------------------------------------------------------------------------------------

OPERATORS: list[tuple[type[StreamOperator], dict[str, Any]]] = [
    (SparkStreamSubmitOperator, {"wait_for": "first_batch", "notify": print}),
    (SparkStreamResumeOperator, {"allow": ["data_lost"]}),
    (SparkStreamSuperviseOperator, {"until": timedelta(hours=1)}),
    (SparkStreamStopOperator, {"kill_after": "1 minute"}),
    (CheckpointProgressSensor, {"batches": "{{ params.n }}"}),
    (ExactlyOnceVerifyOperator, {}),
]


@pytest.mark.parametrize(("kind", "values"), OPERATORS)
def test_a_dag_with_the_operator_survives_the_way_to_the_scheduler(kind: Any, values: dict[str, Any]) -> None:
    stream = a_stream(restart=FixedDelay(3, timedelta(seconds=10)), checkpoint="file:///data/{{ params.x }}")
    with DAG("dag", schedule=None) as dag:
        kind(task_id="task", stream=stream, deferrable=True, timeout=timedelta(minutes=1), **values)
    document = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    task: Any = DagSerialization.from_dict(document).get_task("task")
    assert task.task_type == kind.__name__
    assert task.template_fields[0] == "stream"
    assert task.stream == stream.as_dict()
    assert [link.name for link in task.operator_extra_links] == ["Spark UI"]


@pytest.mark.parametrize(("kind", "values"), OPERATORS)
def test_the_stream_and_the_time_limit_are_rendered_for_each_run(kind: Any, values: dict[str, Any]) -> None:
    stream = a_stream(checkpoint="file:///data/{{ run_id }}", lanes="{{ params.n }}", source=["in_{{ params.n }}"])
    operator = kind(task_id="task", stream=stream, timeout="{{ params.n }} minutes", **values)
    operator.render_template_fields({"run_id": "run-7", "params": {"n": 4}})
    assert operator.stream == a_stream(checkpoint="file:///data/run-7", lanes=4, source="in_4")
    assert stream.lanes == "{{ params.n }}"
    if kind is not SparkStreamStopOperator:
        left = datetime.fromisoformat(operator.goal().deadline) - datetime.now(UTC)
        assert timedelta(minutes=3) < left <= timedelta(minutes=4)


def test_a_stream_whose_name_is_a_template_has_no_asset() -> None:
    assert make(SparkStreamSubmitOperator, stream=a_stream(name="{{ x }}")).outlets == []
    assert [a.name for a in make(SparkStreamSubmitOperator).outlets] == ["stream:orders"]
