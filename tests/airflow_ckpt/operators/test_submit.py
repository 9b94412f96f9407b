"""Submit: what it waits for, in a worker and through the triggerer, and what ends it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_ckpt.exceptions import BadConnection, CkptError, PreflightRefused
from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
from airflow_ckpt.streams.preflight import PreflightFinding
from airflow_ckpt.streams.status import StreamStatus
from ckpt_stream.errors import LedgerLost, SinkError
from tests.airflow_ckpt.operators.fakes import Play, a_context, deferred, event, make
from tests.airflow_ckpt.supervision.samples import a_status, a_stream

pytestmark = pytest.mark.unit


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
    play("STARTING", a_status("FAILED", reason="TopicMissing"))
    with pytest.raises(AirflowFailException, match="TopicMissing"):
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
    play("STARTING", a_status(state, reason="TopicMissing"))
    with pytest.raises(AirflowFailException, match=f"orders.*{state}.*TopicMissing"):
        make(SparkStreamSubmitOperator).execute(a_context())


def test_a_stream_that_breaks_while_the_task_is_deferred_fails_the_task_for_good(play: Play) -> None:
    play("STARTING")
    operator, context = make(SparkStreamSubmitOperator, deferrable=True), a_context()
    trigger = deferred(lambda: operator.execute(context))
    broken = {**event(trigger, a_status("FAILED"), "failed"), "reason": "orders is FAILED: TopicMissing"}
    with pytest.raises(AirflowFailException, match="TopicMissing"):
        operator.on_event(context, broken)


def test_a_time_limit_goes_with_the_goal(play: Play) -> None:
    play("STARTING")
    before = datetime.now(UTC)
    trigger = deferred(
        lambda: make(SparkStreamSubmitOperator, deferrable=True, timeout=timedelta(minutes=5)).execute(a_context())
    )
    assert before <= datetime.fromisoformat(trigger.goal["deadline"]) - timedelta(minutes=5) <= datetime.now(UTC)


@pytest.mark.parametrize(
    "refusal",
    [PreflightRefused("orders", [PreflightFinding("data_lost", "w", "r", "h")]), LedgerLost("found", "risk", "helps")],
)
def test_what_no_retry_can_cure_is_not_retried(play: Play, refusal: Exception) -> None:
    play().refusal = refusal
    with pytest.raises(AirflowFailException, match=type(refusal).__name__):
        make(SparkStreamSubmitOperator).execute(a_context())


def test_notifiers_get_a_refusal_once(play: Play) -> None:
    play().refusal = LedgerLost("found", "risk", "helps")
    told: list[str] = []
    with pytest.raises(AirflowFailException):
        make(SparkStreamSubmitOperator, notify=lambda c: told.append(c["ckpt"]["event"])).execute(a_context())
    assert told == ["given_up"]


@pytest.mark.parametrize(
    "refusal",
    [
        PreflightRefused("orders", [PreflightFinding("kafka_unreachable", "w", "r", "h", temporary=True)]),
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
        PreflightFinding(kind, "w", "r", "h", temporary=p) for kind, p in (("ledger", True), ("data_lost", False))
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
    with pytest.raises(CkptError, match="OSError: away") as caught:
        operator.on_event(context, {**event(trigger, None, "error"), "reason": "OSError: away"})
    assert not isinstance(caught.value, AirflowFailException)
