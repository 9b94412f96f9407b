"""Stop and kill, risks, a look, and a job beside the stream."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState
from airflow_ckpt.streams.goal import Goal
from airflow_ckpt.streams.observation import SourcePosition
from airflow_ckpt.streams.preflight import StartConditions
from airflow_ckpt.supervision import control as control_module
from airflow_ckpt.supervision.intent_files import write_intent
from airflow_ckpt.supervision.launch_request import LaunchRequest
from ckpt_stream.errors import LedgerLost
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.fakes import Deployment, intent_of

pytestmark = pytest.mark.unit


# --- risks -------------------------------------------------------------------------------------------------------------


def test_the_risks_of_a_stream_that_runs_are_those_of_a_restart_and_not_that_it_runs(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = world.control()
    control.submit()
    world.says("STARTING", "RUNNING")
    look = control.look_before_start()
    assert [finding.kind for finding in control.preflight(look)] == ["driver_alive"]
    assert control.risks(look) == []
    bad = StartConditions(
        look.status,
        SourcePosition(topics={}),
        time.time(),
        missing_topics=["orders_out"],
        ledger_refusal=LedgerLost("found", "risk", "helps"),
    )
    monkeypatch.setattr(control_module, "read_start_conditions", lambda _, look: replace(bad, status=look.status))
    # Ledger and checkpoint move while they are read: what they seem to say of a stream that runs is not reported.
    assert {finding.kind for finding in control.risks(look)} == {"topic_missing"}
    world.fails(ago=20)
    assert {finding.kind for finding in control.risks(control.look_before_start())} == {"topic_missing", "ledger"}


# --- where the input ends ---------------------------------------------------------------------------------------------


def test_the_input_ends_where_readers_of_committed_records_can_get_to(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that waits for the end of all input would wait for a transaction of another program without an end."""
    ends = {"orders_in": TopicEnds({0: 0}, {0: 5}, {0: 9}), "gone": None}
    monkeypatch.setattr(control_module, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(control_module, "source_ends", lambda *_: ends)
    assert world.control(kafka={"bootstrap.servers": "not-asked.invalid:1"}).source_ends() == {"orders_in": {"0": 5}}
    assert world.control().source_ends() == {}


# --- a job beside the stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "result", "outcome"),
    [
        (DriverState(RUNNING, "pid 1"), False, "waiting"),
        (DriverState(RUNNING, "pid 1"), True, "waiting"),
        (DriverState(UNKNOWN, "another host"), False, "waiting"),
        # The triggerer's container cannot see the process, but its result.
        (DriverState(UNKNOWN, "another host"), True, "reached"),
        (DriverState(ENDED, "exit code", 0), False, "reached"),
        (DriverState(ENDED, "exit code", 1), True, "failed"),
        (DriverState(VANISHED, "gone"), False, "failed"),
    ],
)
def test_a_job_is_over_when_it_has_ended_or_its_state_is_unknown_and_its_result_is_there(
    world: Deployment, state: DriverState, result: bool, outcome: str
) -> None:
    control = world.control()
    handle = control.start_job(LaunchRequest("token"))
    world.runner.drivers["token"] = state
    if result:
        world.files.write("_ckpt/verdicts/token.result", "{}")
    assert control.look_at_job(handle, "_ckpt/verdicts/token.result", Goal()).outcome == outcome


def test_a_job_whose_state_is_unknown_is_not_waited_for_without_end(world: Deployment) -> None:
    control = world.control()
    handle = control.start_job(LaunchRequest("token"))
    world.runner.drivers["token"] = DriverState(UNKNOWN, "another host")
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    ended = control.look_at_job(handle, "_ckpt/verdicts/token.result", Goal(deadline=past))
    assert ended.outcome == "timeout"
    assert all(part in ended.reason for part in ("UNKNOWN", "another host"))


def test_restarts_are_counted_by_the_task_or_user_that_made_them(world: Deployment) -> None:
    world.control("dag.a run-1").submit()
    for by in ("dag.a run-1", "dag.a run-1", "dag.b run-1"):
        world.fails(ago=20)
        control = world.control(by)
        control.resume(control.look_before_start())
    assert [world.control(by).restarts_by_me() for by in ("dag.a run-1", "dag.b run-1", "dag.c run-1")] == [2, 1, 0]


# --- stop and kill -----------------------------------------------------------------------------------------------------


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
