"""Stop and kill, risks, a look, and a job beside the stream."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.runners.base import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, RunnerError
from airflow_ckpt.streams import control as control_module
from airflow_ckpt.streams import observe
from airflow_ckpt.streams.control import Order
from airflow_ckpt.streams.goal import Goal
from airflow_ckpt.streams.intent import write_intent
from airflow_ckpt.streams.preflight import Facts, PreflightRefused
from ckpt_stream import run_record as records
from ckpt_stream.errors import LedgerLost
from ckpt_stream.lease import boot_id
from tests.airflow_ckpt.streams.fakes import Deployment, intent_of, kinds, sleep_until, stalled

pytestmark = pytest.mark.unit


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


# --- stop and kill -----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("state", ["NEW", "STOPPED", "FINISHED"])
def test_a_stop_of_a_stream_that_runs_no_more_and_is_not_to_run_changes_nothing(world: Deployment, state: str) -> None:
    if state != "NEW":
        world.control().submit()
        world.says("STARTING", "RUNNING", state)
    assert world.control().request_stop().state == state
    assert world.files.read(records.STOP) is None


def lost(world: Deployment) -> None:
    world.says("STARTING", "RUNNING", ago=20)
    world.runner.drivers[world.token] = DriverState(VANISHED, "gone")


def failed(world: Deployment) -> None:
    world.fails(ago=11)


def submit_failed(world: Deployment) -> None:
    del world.runner.drivers[world.token]
    write_intent(world.files, replace(intent_of(world), handle=None, failed={"message": "no", "time": records.now()}))


Break = Callable[[Deployment], None]
BREAKS = pytest.mark.parametrize("breaks", [failed, lost, submit_failed])


@BREAKS
def test_a_stream_that_is_stopped_while_it_is_broken_is_restarted_by_nobody(world: Deployment, breaks: Break) -> None:
    world.control().submit(submission="a")
    breaks(world)
    broken = world.control().status()
    found = world.control("bob").request_stop("maintenance")
    assert (found.state, found.broken_since) == ("STOPPED", None)
    for word in ("bob", "maintenance", broken.state, broken.reason):
        assert word in found.reason
    control = world.control()
    plan = control.plan_resume(control.status())
    assert (plan.action, "bob" in plan.reason) == ("none", True)
    # Neither does whoever has looked before the request, nor the same submit again, as when its task is retried.
    assert control.resume(broken).state == "STOPPED"
    assert control.submit(submission="a").state == "STOPPED"
    assert len(world.runner.started) == 1


@BREAKS
def test_a_later_submit_begins_anew_and_the_stop_is_forgotten(world: Deployment, breaks: Break) -> None:
    world.control().submit(submission="a")
    breaks(world)
    world.control("bob").request_stop()
    assert world.control().submit(submission="b").state == "STARTING"
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "submit"])
    assert world.files.read(records.STOP) is None
    world.fails(ago=11)
    control = world.control()
    assert control.plan_resume(control.status()).action == "start"


@pytest.mark.parametrize("submission", ["b", None])
def test_a_new_submit_withdraws_the_stop_of_a_driver_that_lives(world: Deployment, submission: str | None) -> None:
    world.control().submit(submission="a")
    world.says("STARTING", "RUNNING")
    assert world.control("bob").request_stop().stop
    found = world.control().submit(submission=submission)
    assert (found.state, found.stop, world.files.read(records.STOP)) == ("RUNNING", None, None)
    assert len(world.runner.started) == 1


def test_a_retry_of_the_submit_withdraws_no_stop(world: Deployment) -> None:
    world.control().submit(submission="a")
    world.says("STARTING", "RUNNING")
    world.control("bob").request_stop()
    assert world.control().submit(submission="a").stop


@pytest.mark.parametrize("submission", ["b", None])
def test_a_new_submit_restarts_a_stalled_stream_in_spite_of_a_stop(world: Deployment, submission: str | None) -> None:
    stalled(world)
    first = world.token
    world.control("bob").request_stop()
    found = world.control().submit(submission=submission)
    assert (found.state, found.stop, found.token) == ("STARTING", None, world.token)
    assert (world.runner.killed, len(world.runner.started)) == ([first], 2)


def test_a_new_submit_waits_for_the_end_of_a_driver_that_has_taken_up_a_stop(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit(submission="a")
    run = world.says("STARTING", "RUNNING")
    world.control("bob").request_stop()
    run.stopping = True
    world.files.write(run.path, run.to_json())
    pauses = sleep_until(monkeypatch, lambda: world.says("STOPPED"))
    assert world.control().submit(submission="b").state == "STARTING"
    assert (len(pauses), len(world.runner.started), kinds(world)) == (1, 2, ["submit", "submit"])


def test_a_stop_asks_kafka_nothing(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")

    def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError("Kafka was asked")

    monkeypatch.setattr(observe, "read_lag", asked)
    assert world.control(kafka={"bootstrap.servers": "127.0.0.1:1"}).request_stop().stop


def test_a_request_that_the_driver_deleted_with_one_from_before_is_written_again(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING")
    write, written = world.files.write, []

    def deleted_at_once(name: str, text: str) -> None:
        write(name, text)
        if name == records.STOP:
            written.append(text)
            if len(written) == 1:
                world.files.remove(records.STOP)

    world.files.write = deleted_at_once  # type: ignore[method-assign]
    assert world.control("bob").request_stop().stop
    assert len(written) == 2


def test_a_request_that_is_withdrawn_leaves_the_stream_as_it_was(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=11)
    world.control("bob").request_stop()
    assert world.control().withdraw_stop().state == "FAILED"


def test_a_submit_that_is_refused_forgets_no_stop(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit()
    world.fails()
    world.control("bob").request_stop()
    monkeypatch.setattr(control_module, "gather", lambda _, status: Facts(status, kafka_error="away"))
    with pytest.raises(PreflightRefused):
        world.control().submit(submission="b")
    assert world.control().status().state == "STOPPED"


def test_a_stop_that_its_driver_did_not_live_to_read_outlives_it(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    asked = world.control("bob").request_stop()
    assert (asked.state, (asked.stop or {})["by"]) == ("RUNNING", "bob")
    world.runner.drivers[world.token] = DriverState(ENDED, "exit code 137 (SIGKILL)", 137)
    found = world.control().status()
    assert (found.state, "bob" in found.reason) == ("STOPPED", True)


def test_a_stop_that_its_driver_obeyed_is_told_with_who_and_why(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    world.control("bob").request_stop("maintenance")
    world.says("STOPPED")
    found = world.control().status()
    assert (found.state, found.stop) == ("STOPPED", None)
    assert "on request of bob" in found.reason
    assert "maintenance" in found.reason


def test_a_stop_in_the_pause_before_a_restart_ends_the_wait(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit(submission="a")
    world.fails(ago=4)
    pauses = sleep_until(monkeypatch, lambda: world.control("bob").request_stop())
    assert world.control().submit(submission="a").state == "STOPPED"
    assert (len(pauses), len(world.runner.started)) == (1, 1)


def test_a_stop_that_comes_while_the_restart_is_prepared_is_seen_in_time(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=11)
    control = world.control()
    original = control._check

    def check(*args: Any) -> Any:
        world.control("bob").request_stop()
        return original(*args)

    monkeypatch.setattr(control, "_check", check)
    assert control.resume(control.status()).state == "STOPPED"
    # Nothing is left behind that a driver would have to clean up.
    assert (len(world.runner.started), len(world.orders), kinds(world)) == (1, 1, ["submit"])


def test_a_stop_that_crosses_a_restart_reaches_the_driver_that_was_started(world: Deployment) -> None:
    """Whoever stops has seen the stream FAILED; it is restarted before the request is written."""
    world.control().submit()
    world.fails(ago=11)
    asking, write = world.control("bob"), world.files.write

    def late(name: str, text: str) -> None:
        if name == records.STOP and len(world.runner.started) == 1:
            control = world.control()
            control.resume(control.status())
        write(name, text)

    world.files.write = late  # type: ignore[method-assign]
    found = asking.request_stop()
    assert (found.state, found.token) == ("STARTING", world.token)
    assert records.is_stop_for(world.files.read(records.STOP) or "", world.says("STARTING"))


def test_a_stalled_driver_that_was_asked_to_stop_is_ended_and_not_started_again(world: Deployment) -> None:
    stalled(world)
    assert world.control("bob").request_stop().state == "STALLED"
    control = world.control()
    assert control.resume(control.status()).state == "STOPPED"
    assert (world.runner.killed, len(world.runner.started)) == ([world.token], 1)


def test_a_request_that_an_earlier_run_has_obeyed_says_nothing_about_one_that_was_started_by_hand(
    world: Deployment,
) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=60)
    world.control("bob").request_stop()
    world.says("STOPPED")
    run = world.says("STARTING", "RUNNING", token="by-hand")
    run.driver = {"host": socket.gethostname(), "boot": boot_id(), "pid": 2**22 + 1, "started": 1.0}
    world.files.write(run.path, run.to_json())
    assert world.control().status().state == "LOST"


def test_a_stop_request_that_cannot_be_read_is_none(world: Deployment) -> None:
    world.control().submit()
    world.fails()
    world.files.write(records.STOP, "{")
    assert world.control().status().state == "FAILED"


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


def test_a_kill_that_was_cut_off_before_its_order_is_not_remembered(world: Deployment) -> None:
    """The driver lives on; when it dies of something else later, it is to be restarted."""

    def cut_off(token: str) -> None:
        raise KeyboardInterrupt

    world.control().submit()
    world.runner.on_kill = cut_off
    with pytest.raises(KeyboardInterrupt):
        world.control().kill()
    assert (intent_of(world).killed, world.runner.killed) == (None, [])


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
