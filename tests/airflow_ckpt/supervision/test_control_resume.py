"""Resume: who is restarted, when, and what is in the way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_ckpt.exceptions import (
    NO_CURE,
    NO_MORE_RESTARTS,
    CkptError,
    GivenUp,
    PreflightRefused,
    StillAlive,
    SubmitFailed,
)
from airflow_ckpt.streams.driver_state import RUNNING, UNKNOWN, VANISHED, DriverState
from airflow_ckpt.streams.preflight import StartConditions
from airflow_ckpt.streams.restart_strategies import FixedDelay, NoRestart
from airflow_ckpt.supervision import control as control_module
from airflow_ckpt.supervision.observing import LookBeforeStart
from airflow_ckpt.supervision.resume_plan import Because
from airflow_ckpt.supervision.starting import Starter
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import LedgerUndecided
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.restart_history import read_history
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.fakes import FAILURE, Deployment, kinds, stalled
from tests.airflow_ckpt.supervision.samples import a_stream, start_with

pytestmark = pytest.mark.unit


def test_a_fourth_failure_under_three_restarts_is_final(world: Deployment) -> None:
    world.control().submit(submission="a")
    for restart in (1, 2, 3):
        world.fails(ago=11)
        control = world.control()
        plan = control.plan_resume(control.status())
        assert (plan.action, plan.restart) == ("start", restart)
        control.resume(control.look_before_start())
    world.fails(ago=11)
    control = world.control()
    with pytest.raises(GivenUp) as given_up:
        control.plan_resume(control.status())
    assert given_up.value.kind == NO_MORE_RESTARTS
    assert ": ".join(FAILURE) in str(given_up.value)
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
    status = control.resume(control.look_before_start())
    assert (status.state, status.token) == ("STARTING", world.runner.started[1])
    entry = read_history(world.files)[-1]
    first = world.runs[world.runner.started[0]]
    assert (entry["after_run"], entry["after_state"], entry["by"]) == (first.run, "FAILED", "dag.resume")
    assert (entry["token"], entry["reason"]) == (world.token, ": ".join(FAILURE))


def test_an_attempt_that_fails_at_once_uses_the_budget_too(world: Deployment) -> None:
    world.stream = a_stream(restart=FixedDelay(1, timedelta(0)))
    world.control().submit()
    world.fails(ago=1)

    def fail(token: str) -> None:
        raise SubmitFailed("QueueMissing")

    world.runner.before = fail
    control = world.control()
    with pytest.raises(SubmitFailed):
        control.resume(control.look_before_start())
    with pytest.raises(GivenUp, match="QueueMissing") as given_up:
        control.plan_resume(control.status())
    assert given_up.value.kind == NO_MORE_RESTARTS


def test_a_failure_that_no_restart_cures_is_final_although_the_budget_is_whole(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=11, curable=False)
    control = world.control()
    with pytest.raises(GivenUp, match=": ".join(FAILURE)) as given_up:
        control.plan_resume(control.status())
    assert given_up.value.kind == NO_CURE


def test_without_restarts_the_first_failure_is_final(world: Deployment) -> None:
    world.stream = a_stream(restart=NoRestart())
    world.control().submit()
    world.fails(ago=11)
    control = world.control()
    with pytest.raises(GivenUp) as given_up:
        control.plan_resume(control.status())
    assert given_up.value.kind == NO_MORE_RESTARTS


def test_a_healthy_a_stopped_and_a_new_stream_are_not_resumed(world: Deployment) -> None:
    control = world.control()
    plan = control.plan_resume(control.status())
    assert (plan.action, plan.because) == ("none", Because.NEVER_STARTED)
    control.submit()
    world.says("STARTING", "RUNNING")
    plan = control.plan_resume(control.status())
    assert (plan.action, plan.because) == ("none", Because.LIVES)
    world.says("STOPPED")
    plan = control.plan_resume(control.status())
    assert (plan.action, plan.because) == ("none", Because.ENDED_ON_PURPOSE)
    assert "STOPPED" in plan.reason


def test_a_driver_that_vanished_is_resumed(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    world.runner.drivers[world.token] = DriverState(VANISHED, "gone")
    control = world.control()
    assert control.status().state == "LOST"
    assert control.plan_resume(control.status()).action == "start"
    control.resume(control.look_before_start())
    assert len(world.runner.started) == 2


def test_a_stream_that_was_lost_once_and_then_stopped_is_stopped(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    world.runner.drivers[world.token] = DriverState(VANISHED, "gone")
    control = world.control()
    control.resume(control.look_before_start())
    world.says("STARTING", "RUNNING", "STOPPED")
    assert world.control().status().state == "STOPPED"


def test_a_resume_is_refused_while_a_driver_lives(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    control = world.control()
    with pytest.raises(PreflightRefused) as refused:
        control.resume(control.look_before_start())
    assert [f.kind for f in refused.value.findings] == ["driver_alive"]
    assert len(world.runner.started) == 1


def test_a_stalled_driver_is_killed_before_the_next_is_started(world: Deployment) -> None:
    stalled(world)
    first = world.token
    world.runner.before = lambda token: pytest.fail("two at once") if world.runner.drivers[first].live else None
    control = world.control()
    control.resume(control.look_before_start())
    assert (len(world.runner.started), world.runner.killed) == (2, [first])
    assert kinds(world) == ["submit", "restart"]
    assert world.files.read(record_files.STOP) is None


@pytest.mark.parametrize("state", [RUNNING, UNKNOWN])
def test_a_stalled_driver_whose_end_is_not_confirmed_has_no_successor(world: Deployment, state: str) -> None:
    stalled(world)
    world.runner.after_kill = DriverState(state, "NodeNotReady")
    control = world.control()
    with pytest.raises(StillAlive, match="NodeNotReady"):
        control.resume(control.look_before_start())
    assert (len(world.runner.started), kinds(world)) == (1, ["submit"])


def test_a_stalled_driver_that_is_gone_when_it_is_to_be_killed_is_restarted(world: Deployment) -> None:
    stalled(world)
    world.runner.after_kill = DriverState(VANISHED, "no such pod")
    control = world.control()
    control.resume(control.look_before_start())
    assert len(world.runner.started) == 2


def test_a_stalled_stream_whose_restart_is_interrupted_is_still_to_be_resumed(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a request to stop it would now be STOPPED, which is not restarted."""
    stalled(world)
    control = world.control()
    monkeypatch.setattr(Starter, "_start", lambda *_, **__: pytest.fail("the worker dies here"))
    with pytest.raises(pytest.fail.Exception):
        control.resume(control.look_before_start())
    assert world.runner.killed == [world.token]
    control = world.control()
    assert control.status().state == "LOST"
    assert control.plan_resume(control.status()).action != "none"


def test_a_stalled_driver_is_not_killed_while_something_else_is_in_the_way(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled(world)
    away = start_with(kafka_error="BrokersDown")
    monkeypatch.setattr(control_module, "read_start_conditions", away)
    control = world.control()
    with pytest.raises(PreflightRefused, match="BrokersDown") as refused:
        control.resume(control.look_before_start())
    assert "kafka_unreachable" in [f.kind for f in refused.value.findings]
    assert (world.runner.killed, kinds(world)) == ([], ["submit"])


def test_a_stalled_driver_that_cannot_be_ended_is_left_alone_and_nothing_is_started(world: Deployment) -> None:
    world.stream = a_stream(start_timeout=1, heartbeat=60)
    run = world.says("STARTING", ago=120, token="by-hand")
    run.heartbeat, run.heartbeat_seconds = datetime.now(UTC).isoformat(), 60
    world.files.write(run.path, run.to_json())
    control = world.control()
    assert control.status().state == "STALLED"
    with pytest.raises(CkptError, match=r"airflow-ckpt resume .* --new-budget") as refused:
        control.resume(control.look_before_start())
    assert refused.value.kind == "not_started_by_airflow"
    assert world.runner.started == []


def test_a_stalled_stream_whose_ledger_moved_during_the_look_is_restarted_all_the_same(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver lives: ledger and checkpoint are compared when it has ended."""
    stalled(world)

    def read(access: StreamAccess, look: LookBeforeStart) -> StartConditions:
        found = start_with(topics={"orders_in": TopicEnds({0: 0}, {0: 1}, {0: 1})})(access, look)
        return replace(found, ledger_refusal=LedgerUndecided("look again")) if look.status.state == "STALLED" else found

    monkeypatch.setattr(control_module, "read_start_conditions", read)
    control = world.control()
    assert control.resume(control.look_before_start()).state == "STARTING"
    assert len(world.runner.started) == 2


def test_a_stalled_stream_whose_ledger_does_not_fit_is_ended_and_not_restarted(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled(world)
    given = start_with(topics={"orders_in": TopicEnds({0: 0}, {0: 1}, {0: 1})})
    monkeypatch.setattr(
        control_module,
        "read_start_conditions",
        lambda access, look: replace(given(access, look), ledger_refusal=LedgerUndecided("look again")),
    )
    control = world.control()
    with pytest.raises(PreflightRefused):
        control.resume(control.look_before_start())
    assert len(world.runner.started) == 1


def test_a_stalled_stream_that_is_stopped_while_its_driver_is_killed_ends_without_a_refusal(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not to be started, so what would prevent a start does not matter."""
    stalled(world)
    control = world.control()
    look = control.look_before_start()
    world.control("bob").request_stop()
    prevented = start_with(kafka_error="away")
    world.runner.on_kill = lambda token: monkeypatch.setattr(control_module, "read_start_conditions", prevented)
    assert control.resume(look).state == "STOPPED"
