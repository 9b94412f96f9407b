"""Start, resume, stop and kill: nothing is started twice, and no budget is escaped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.kafka.offsets import Ends
from airflow_ckpt.runners.base import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, RunnerError, SubmitFailed
from airflow_ckpt.streams import control as control_module
from airflow_ckpt.streams.control import GivenUp, Order
from airflow_ckpt.streams.goal import Goal
from airflow_ckpt.streams.intent import SubmitIntent, read_intent, write_intent
from airflow_ckpt.streams.preflight import Facts, PreflightFinding, PreflightRefused
from airflow_ckpt.streams.restart import FixedDelay, NoRestart
from airflow_ckpt.streams.restarts import read_history
from ckpt_stream import run_record as records
from ckpt_stream.errors import LedgerLost
from tests.airflow_ckpt.streams.fakes import Deployment
from tests.airflow_ckpt.streams.samples import a_stream

pytestmark = pytest.mark.unit

TEN_SECONDS = timedelta(seconds=10)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A stream of which preflight finds nothing bad, except another driver."""
    topic = Ends({0: 0}, {0: 1}, {0: 1})
    monkeypatch.setattr(control_module, "gather", lambda _, status: Facts(status, source={"orders_in": topic}))
    return Deployment(tmp_path, a_stream(restart=FixedDelay(3, TEN_SECONDS), stall_after=60))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody sleeps; the pauses are written down."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def sleep_until(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> list[float]:
    """A pause takes no time, and this happens in it."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        meanwhile()

    monkeypatch.setattr(time, "sleep", sleep)
    return pauses


def intent_of(world: Deployment) -> SubmitIntent:
    intent = read_intent(world.files)
    assert intent is not None
    return intent


def kinds(world: Deployment) -> list[str]:
    return [entry["kind"] for entry in read_history(world.files)]


# --- risks -------------------------------------------------------------------------------------------------------------


def test_the_risks_of_a_stream_that_runs_are_those_of_a_restart_and_not_that_it_runs(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = world.control()
    control.submit()
    world.says("STARTING", "RUNNING")
    status = control.status()
    assert [finding.kind for finding in control.preflight(status)] == ["driver_alive"]
    assert control.risks(status) == []
    bad = Facts(status, missing_topics=["orders_out"], source={}, ledger_refusal=LedgerLost("found", "risk", "helps"))
    monkeypatch.setattr(control_module, "gather", lambda _, status: replace(bad, status=status))
    # Ledger and checkpoint move while they are read: what they seem to say of a stream that runs is not reported.
    assert {finding.kind for finding in control.risks(status)} == {"topic_missing"}
    world.fails(ago=20)
    assert {finding.kind for finding in control.risks(control.status())} == {"topic_missing", "ledger"}


# --- a job beside the stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "result", "outcome"),
    [
        (DriverState(RUNNING, "pid 1"), False, "waiting"),
        (DriverState(RUNNING, "pid 1"), True, "waiting"),
        (DriverState(UNKNOWN, "another host"), False, "waiting"),
        # From the triggerer's container nobody sees the process; its result is there for all to see.
        (DriverState(UNKNOWN, "another host"), True, "reached"),
        (DriverState(ENDED, "exit code", 0), False, "reached"),
        (DriverState(ENDED, "exit code", 1), True, "failed"),
        (DriverState(VANISHED, "gone"), False, "failed"),
    ],
)
def test_a_job_is_over_when_it_has_ended_or_nobody_sees_it_and_its_result_is_there(
    world: Deployment, state: DriverState, result: bool, outcome: str
) -> None:
    control = world.control()
    handle = control.start_job(Order("token"))
    world.runner.drivers["token"] = state
    if result:
        world.files.write("_ckpt/verdicts/token.result", "{}")
    assert control.look_at_job(handle, "_ckpt/verdicts/token.result", Goal()).outcome == outcome


def test_a_job_that_nobody_sees_is_not_waited_for_for_ever(world: Deployment) -> None:
    control = world.control()
    handle = control.start_job(Order("token"))
    world.runner.drivers["token"] = DriverState(UNKNOWN, "another host")
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    ended = control.look_at_job(handle, "_ckpt/verdicts/token.result", Goal(deadline=past))
    assert (ended.outcome, ended.reason) == ("timeout", "the job is UNKNOWN: another host, and was not over in time")


def test_whoever_restarts_is_counted_by_name(world: Deployment) -> None:
    world.control("dag.a run-1").submit()
    for by in ("dag.a run-1", "dag.a run-1", "dag.b run-1"):
        world.fails(ago=20)
        control = world.control(by)
        control.resume(control.status())
    assert [world.control(by).restarts_by_me() for by in ("dag.a run-1", "dag.b run-1", "dag.c run-1")] == [2, 1, 0]


# --- submit ------------------------------------------------------------------------------------------------------------


def test_a_submit_starts_one_driver_and_notes_who_how_and_as_part_of_what(world: Deployment) -> None:
    status = world.control("dag.submit").submit(submission="dag run-1")
    assert (status.state, status.token) == ("STARTING", world.token)
    intent = intent_of(world)
    assert (intent.by, intent.runner, intent.token) == ("dag.submit", "process", world.token)
    assert intent.command["argv"] == ["spark-submit", "--name", world.token]
    assert intent.stream == world.stream.as_dict()
    assert intent.handle is not None
    [entry] = read_history(world.files)
    assert (entry["kind"], entry["token"], entry["submission"]) == ("submit", world.token, "dag run-1")
    assert (entry["by"], entry["after_state"]) == ("dag.submit", "NEW")


def test_the_intent_is_there_before_the_driver_is(world: Deployment) -> None:
    seen: list[tuple[str, Any]] = []
    world.runner.before = lambda token: seen.append((intent_of(world).token, intent_of(world).handle))
    world.control().submit()
    assert seen == [(world.token, None)]


@pytest.mark.parametrize("state", [("STARTING",), ("STARTING", "RUNNING")])
def test_a_second_submit_attaches_to_the_driver_that_lives(world: Deployment, state: tuple[str, ...]) -> None:
    world.control("first").submit(submission="a")
    world.says(*state)
    status = world.control("second").submit(submission="b")
    assert (status.state, status.token) == (state[-1], world.token)
    assert len(world.runner.started) == 1
    assert kinds(world) == ["submit", "attach"]


def test_clearing_a_submit_that_only_attached_begins_no_new_budget(world: Deployment) -> None:
    world.control("first").submit(submission="a")
    world.says("STARTING", "RUNNING")
    world.control("second").submit(submission="b")
    world.fails(ago=20)
    world.control("second, cleared").submit(submission="b")
    assert kinds(world) == ["submit", "attach", "restart"]


def test_a_submit_attaches_to_a_driver_that_has_not_said_a_word_yet(world: Deployment) -> None:
    world.control().submit()
    assert world.control().submit().state == "STARTING"
    assert len(world.runner.started) == 1


def test_a_driver_whose_submitter_died_before_the_answer_is_found_by_its_token_and_not_started_twice(
    world: Deployment,
) -> None:
    def die(token: str) -> None:
        raise KeyboardInterrupt

    world.runner.after = die
    with pytest.raises(KeyboardInterrupt):
        world.control("first").submit(submission="a")
    assert intent_of(world).handle is None
    world.runner.after = lambda token: None
    status = world.control("second").submit(submission="a")
    assert (status.state, status.token) == ("STARTING", world.token)
    assert len(world.runner.started) == 1
    assert intent_of(world).handle == {
        "kind": "process",
        "id": f"id-{world.token}",
        "token": world.token,
        "details": {"log": f"/log/{world.token}"},
    }


def test_a_submitter_that_died_before_there_was_a_driver_is_waited_for_and_then_replaced(
    world: Deployment, slept: list[float]
) -> None:
    def die(token: str) -> None:
        raise KeyboardInterrupt

    world.runner.before = die
    with pytest.raises(KeyboardInterrupt):
        world.control().submit(submission="a")
    world.runner.before = lambda token: None
    assert world.control().submit(submission="a").state == "STARTING"
    assert world.runner.started == []
    long_ago = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    write_intent(world.files, replace(intent_of(world), time=long_ago))
    assert world.control().status().state == "LOST"
    assert world.control().submit(submission="a").state == "STARTING"
    assert len(world.runner.started) == 1
    assert kinds(world) == ["submit", "restart"]


def test_a_submit_that_failed_is_noted_with_its_reason(world: Deployment) -> None:
    def fail(token: str) -> None:
        raise SubmitFailed("no such queue")

    world.runner.before = fail
    with pytest.raises(SubmitFailed, match="no such queue"):
        world.control().submit()
    status = world.control().status()
    assert (status.state, status.reason) == ("FAILED", "no such queue")
    assert kinds(world) == ["submit"]


@pytest.mark.parametrize("ended", ["STOPPED", "FINISHED"])
def test_a_stream_that_ended_well_is_started_again_by_a_submit(world: Deployment, ended: str) -> None:
    world.control().submit(submission="a")
    world.says("STARTING", "RUNNING", ended)
    assert world.control().submit(submission="a").state == "STARTING"
    assert len(world.runner.started) == 2
    assert kinds(world) == ["submit", "submit"]


def test_a_refused_start_leaves_no_trace(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "gather", lambda _, status: Facts(status, kafka_error="Kafka is away."))
    with pytest.raises(PreflightRefused, match=r"kafka_unreachable: Kafka is away\."):
        world.control().submit()
    assert (world.runner.started, read_intent(world.files), read_history(world.files)) == ([], None, [])


def test_an_override_is_logged(
    world: Deployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control_module, "gather", lambda _, status: Facts(status, kafka_error="Kafka is away."))
    world.control().submit(allow=["kafka_unreachable"])
    assert len(world.runner.started) == 1
    assert "preflight (allowed): kafka_unreachable: Kafka is away." in caplog.text


def test_only_whoever_allows_lost_data_starts_a_driver_that_accepts_it(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=20)
    control = world.control()
    control.resume(control.status(), allow=["data_lost"])
    lost = [PreflightFinding("data_lost", "offsets are gone.", "Records are lost.", "nothing.")]
    monkeypatch.setattr(control_module, "check", lambda *_: lost)
    world.fails(ago=20)
    control = world.control()
    with pytest.raises(PreflightRefused):
        control.resume(control.status())
    control.resume(control.status(), allow=["data_lost"])
    # Permission alone changes nothing as long as nothing is lost.
    assert [order.accept_data_loss for order in world.orders] == [False, False, True]


def test_nobody_knows_how_to_start_a_stream_without_a_runner(world: Deployment) -> None:
    with pytest.raises(CkptError, match="no runner"):
        world.control(runner=None).submit()


# --- resume ------------------------------------------------------------------------------------------------------------


def test_a_fourth_failure_under_three_restarts_is_final(world: Deployment) -> None:
    world.control().submit(submission="a")
    for restart in (1, 2, 3):
        world.fails(ago=11)
        control = world.control()
        plan = control.plan_resume(control.status())
        assert (plan.action, plan.reason) == ("start", f"restart {restart} of 3, 10 s after the failure")
        control.resume(control.status())
    world.fails(ago=11)
    control = world.control()
    with pytest.raises(GivenUp, match=r"failed for good: all 3 restarts.*SinkError: Kafka is away"):
        control.plan_resume(control.status())
    assert len(world.runner.started) == 4
    assert kinds(world) == ["submit", "restart", "restart", "restart"]


def test_the_pause_counts_from_the_failure_and_not_from_the_look(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=4)
    control = world.control()
    plan = control.plan_resume(control.status())
    assert plan.action == "wait"
    assert 5 < plan.seconds <= 6


def test_a_restart_notes_what_it_follows(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=11)
    control = world.control("dag.resume")
    status = control.resume(control.status())
    assert (status.state, status.token) == ("STARTING", world.runner.started[1])
    entry = read_history(world.files)[-1]
    first = world.runs[world.runner.started[0]]
    assert (entry["after_run"], entry["after_state"], entry["by"]) == (first.run, "FAILED", "dag.resume")
    assert (entry["token"], entry["reason"]) == (world.token, "SinkError: Kafka is away")


def test_an_attempt_that_fails_at_once_uses_the_budget_too(world: Deployment) -> None:
    world.stream = a_stream(restart=FixedDelay(1, timedelta(0)))
    world.control().submit()
    world.fails(ago=1)

    def fail(token: str) -> None:
        raise SubmitFailed("no such queue")

    world.runner.before = fail
    control = world.control()
    with pytest.raises(SubmitFailed):
        control.resume(control.status())
    with pytest.raises(GivenUp, match="no such queue"):
        control.plan_resume(control.status())


def test_a_failure_that_no_restart_cures_is_final_although_the_budget_is_whole(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=11, curable=False)
    control = world.control()
    with pytest.raises(GivenUp, match="a restart cannot help: SinkError: Kafka is away"):
        control.plan_resume(control.status())


def test_without_restarts_the_first_failure_is_final(world: Deployment) -> None:
    world.stream = a_stream(restart=NoRestart())
    world.control().submit()
    world.fails(ago=11)
    control = world.control()
    with pytest.raises(GivenUp, match="strategy is none"):
        control.plan_resume(control.status())


def test_a_healthy_a_stopped_and_a_new_stream_are_not_resumed(world: Deployment) -> None:
    control = world.control()
    assert control.plan_resume(control.status()).reason.startswith("nothing to resume: it was never started")
    control.submit()
    world.says("STARTING", "RUNNING")
    plan = control.plan_resume(control.status())
    assert (plan.action, plan.reason.startswith("nothing to do: orders is RUNNING")) == ("none", True)
    world.says("STOPPED")
    plan = control.plan_resume(control.status())
    assert (plan.action, "ended on purpose (STOPPED)" in plan.reason) == ("none", True)


def test_a_driver_that_vanished_is_resumed(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    world.runner.drivers[world.token] = DriverState(VANISHED, "gone")
    control = world.control()
    assert control.status().state == "LOST"
    assert control.plan_resume(control.status()).action == "start"
    control.resume(control.status())
    assert len(world.runner.started) == 2


def test_a_stream_that_was_lost_once_and_then_stopped_is_stopped(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    world.runner.drivers[world.token] = DriverState(VANISHED, "gone")
    control = world.control()
    control.resume(control.status())
    world.says("STARTING", "RUNNING", "STOPPED")
    assert world.control().status().state == "STOPPED"


def test_a_resume_is_refused_while_a_driver_lives(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    control = world.control()
    with pytest.raises(PreflightRefused, match="driver_alive"):
        control.resume(control.status())
    assert len(world.runner.started) == 1


def stalled(world: Deployment) -> None:
    """The newest driver lives and has not said a word for two windows."""
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=120)
    assert world.control().status().state == "STALLED"


def test_a_stalled_driver_is_killed_before_the_next_is_started(world: Deployment) -> None:
    stalled(world)
    first = world.token
    world.runner.before = lambda token: pytest.fail("two at once") if world.runner.drivers[first].live else None
    control = world.control()
    control.resume(control.status())
    assert (len(world.runner.started), world.runner.killed) == (2, [first])
    assert kinds(world) == ["submit", "restart"]
    assert world.files.read(records.STOP) is None


def test_a_stalled_stream_whose_restart_is_interrupted_is_still_to_be_resumed(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it asked to stop, and did it obey, it would now look like one that somebody wanted to end."""
    stalled(world)
    control = world.control()
    monkeypatch.setattr(control, "_start", lambda *_, **__: pytest.fail("the worker dies here"))
    with pytest.raises(pytest.fail.Exception):
        control.resume(control.status())
    assert world.runner.killed == [world.token]
    control = world.control()
    assert control.status().state == "LOST"
    assert control.plan_resume(control.status()).action != "none"


def test_a_stalled_driver_is_not_killed_while_something_else_is_in_the_way(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled(world)
    away = lambda _, status: Facts(status, kafka_error="No broker answers.")  # noqa: E731
    monkeypatch.setattr(control_module, "gather", away)
    control = world.control()
    with pytest.raises(PreflightRefused, match="No broker answers"):
        control.resume(control.status())
    assert (world.runner.killed, kinds(world)) == ([], ["submit"])


def test_a_stalled_driver_that_nobody_can_end_is_left_alone_and_nothing_is_started(world: Deployment) -> None:
    world.stream = a_stream(start_timeout=1, heartbeat=60)
    run = world.says("STARTING", ago=120, token="by-hand")
    run.heartbeat, run.heartbeat_seconds = datetime.now(UTC).isoformat(), 60
    world.files.write(run.path, run.to_json())
    control = world.control()
    assert control.status().state == "STALLED"
    with pytest.raises(CkptError, match="not started by Airflow"):
        control.resume(control.status())
    assert world.runner.started == []


# --- the budget of a submission ------------------------------------------------------------------------------------------


def test_clearing_a_task_goes_on_with_the_budget_that_is_there(world: Deployment, slept: list[float]) -> None:
    world.control().submit(submission="dag run-1")
    for _ in range(3):
        world.fails(ago=11)
        world.control().submit(submission="dag run-1")
    assert kinds(world) == ["submit", "restart", "restart", "restart"]
    world.fails(ago=11)
    with pytest.raises(GivenUp, match="all 3 restarts"):
        world.control().submit(submission="dag run-1")
    assert len(world.runner.started) == 4


def test_clearing_a_task_keeps_the_pause(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit(submission="dag run-1")
    world.fails(ago=4)
    slept = sleep_until(monkeypatch, lambda: world.fails(ago=11))
    world.control().submit(submission="dag run-1")
    assert [round(pause) for pause in slept] == [6]
    assert kinds(world) == ["submit", "restart"]


def test_a_stream_that_somebody_else_restarts_during_the_pause_is_attached_to(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit(submission="dag run-1")
    world.fails(ago=4)

    def restarted() -> None:
        control = world.control(by="the watchdog")
        control.resume(control.status())
        world.says("STARTING", "RUNNING")

    sleep_until(monkeypatch, restarted)
    assert world.control().submit(submission="dag run-1").state == "RUNNING"
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "restart"])


def test_where_nobody_can_start_it_no_attempt_counts(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=11)
    control = world.control(runner=None)
    with pytest.raises(CkptError, match="no runner"):
        control.resume(control.status())
    with pytest.raises(CkptError, match="no runner"):
        control.submit()
    assert kinds(world) == ["submit"]


def test_a_launch_that_cannot_be_made_is_no_attempt(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit()
    world.fails(ago=11)

    def no_files(order: Order) -> Any:
        raise CkptError("the files of the last submit are not on this machine")

    monkeypatch.setattr(world, "_launch", no_files)
    for call in ("resume", "submit"):
        control = world.control()
        with pytest.raises(CkptError, match="not on this machine"):
            control.resume(control.status()) if call == "resume" else control.submit()
    assert kinds(world) == ["submit"]


def test_who_is_given_up_is_told_how_to_begin_anew(world: Deployment) -> None:
    world.stream = a_stream(restart=NoRestart())
    world.control().submit()
    world.fails()
    control = world.control()
    with pytest.raises(GivenUp, match=f"airflow-ckpt resume {world.stream.checkpoint} --new-budget"):
        control.plan_resume(control.status())


def test_another_submission_of_a_failed_stream_begins_a_new_budget(world: Deployment, slept: list[float]) -> None:
    world.control().submit(submission="dag run-1")
    for _ in range(3):
        world.fails(ago=11)
        world.control().submit(submission="dag run-1")
    world.fails(ago=0)
    world.control().submit(submission="dag run-2")
    assert (kinds(world)[-1], slept) == ("submit", [])
    world.fails(ago=11)
    control = world.control()
    assert control.plan_resume(control.status()).reason.startswith("restart 1 of 3")


def test_a_submission_without_a_name_is_a_new_one_each_time(world: Deployment) -> None:
    for _ in range(5):
        world.control().submit()
        world.fails(ago=0, curable=False)
    assert kinds(world) == ["submit"] * 5


# --- stop and kill -------------------------------------------------------------------------------------------------------


def test_a_stop_is_asked_of_the_run_that_lives(world: Deployment) -> None:
    world.control().submit()
    run = world.says("STARTING", "RUNNING")
    world.control("bob").request_stop("maintenance")
    request = records.parse(world.files.read(records.STOP) or "", "stop request")
    assert (request["run"], request["by"], request["reason"]) == (run.run, "bob", "maintenance")


def test_a_stop_that_is_asked_before_the_drivers_first_word_is_meant_for_it_and_for_no_later_one(
    world: Deployment,
) -> None:
    world.control().submit()
    world.control().request_stop()
    text = world.files.read(records.STOP) or ""
    assert records.is_stop_for(text, world.says("STARTING"))
    assert not records.is_stop_for(text, world.says("STARTING", token="the-next-one"))


def test_a_stop_of_a_stream_that_does_not_run_changes_nothing(world: Deployment) -> None:
    assert world.control().request_stop().state == "NEW"
    world.control().submit()
    world.fails()
    assert world.control().request_stop().state == "FAILED"
    assert world.files.read(records.STOP) is None


def test_a_kill_notes_who_asked_for_it_and_the_stream_is_stopped_and_not_lost(world: Deployment) -> None:
    world.control("ann").submit()
    world.says("STARTING", "RUNNING")
    world.control("bob").kill()
    status = world.control().status()
    assert (world.runner.killed, status.state) == ([world.token], "STOPPED")
    assert "bob" in status.reason


def test_the_kill_is_noted_before_the_driver_is_gone(world: Deployment) -> None:
    world.control().submit()
    seen: list[Any] = []
    world.runner.on_kill = lambda token: seen.append(intent_of(world).killed)
    world.control("bob").kill(wait=0)
    assert seen[0]["by"] == "bob"


def test_a_stream_without_a_driver_cannot_be_killed(world: Deployment) -> None:
    with pytest.raises(CkptError, match="No driver of orders is known"):
        world.control().kill()


def test_a_driver_that_cannot_be_reached_is_not_called_killed(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    world.runner.drivers[world.token] = DriverState(UNKNOWN, "on another machine")

    def refuse(token: str) -> None:
        raise RunnerError("cannot be ended from here")

    world.runner.on_kill = refuse
    with pytest.raises(RunnerError, match="cannot be ended from here"):
        world.control().kill()
    assert intent_of(world).killed is None


def test_a_driver_that_was_dead_already_was_not_killed_on_request(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    world.runner.drivers[world.token] = DriverState(ENDED, "exit code 137 (SIGKILL)", 137)
    world.control().kill()
    assert (intent_of(world).killed, world.control().status().state) == (None, "LOST")


def test_the_end_of_the_newest_drivers_log_can_be_had(world: Deployment) -> None:
    assert world.control().log_tail() == ""
    world.control().submit()
    assert world.control().log_tail(7) == f"the last 7 lines of {world.token}"


# --- a look ------------------------------------------------------------------------------------------------------------


def test_a_driver_of_another_kind_of_runner_is_not_called_gone(world: Deployment) -> None:
    world.control().submit()
    write_intent(world.files, replace(intent_of(world), runner="yarn"))
    status = world.control().status()
    assert status.state == "STARTING"


def test_a_runner_that_does_not_answer_is_not_a_driver_that_is_gone(world: Deployment) -> None:
    world.control().submit()
    write_intent(world.files, replace(intent_of(world), handle=None))

    def no_answer(token: str) -> None:
        raise RunnerError("the ResourceManager does not answer")

    world.runner.find = no_answer  # type: ignore[method-assign]
    assert world.control().status().state == "STARTING"
    assert world.control().submit().state == "STARTING"
    assert len(world.runner.started) == 1
