"""Submit: nothing is started twice, and no budget is escaped."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_ckpt.exceptions import NotStartable, PreflightRefused, RunnerError, SubmitFailed
from airflow_ckpt.streams.preflight import PreflightFinding
from airflow_ckpt.streams.restart_strategies import NoRestart
from airflow_ckpt.supervision import control as control_module
from airflow_ckpt.supervision import source_position
from airflow_ckpt.supervision.intent_files import read_intent, write_intent
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.run_files.restart_history import read_history
from tests.airflow_ckpt.supervision.fakes import Deployment, intent_of, kinds
from tests.airflow_ckpt.supervision.samples import a_stream, start_with

pytestmark = pytest.mark.unit


# --- submit ------------------------------------------------------------------------------------------------------------


def test_a_submit_starts_one_driver_and_notes_by_which_task_how_and_in_which_run(world: Deployment) -> None:
    status = world.control("dag.submit").submit(submission="dag run-1")
    assert (status.state, status.token) == ("STARTING", world.token)
    intent = intent_of(world)
    assert (intent.by, intent.runner, intent.token) == ("dag.submit", "process", world.token)
    assert "spark-submit" not in (world.files.read(intent.path) or ""), "the command is stored on this machine only"
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


def test_a_submit_does_not_attach_to_a_stream_whose_checkpoint_cannot_be_read(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it hangs, and how far it is, shows in its checkpoint alone."""
    world.control("first").submit(submission="a")
    world.says("STARTING", "RUNNING")

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError("denied")

    monkeypatch.setattr(source_position, "read_checkpoint", denied)
    with pytest.raises(PermissionError, match="denied"):
        world.control("second").submit(submission="b")
    assert kinds(world) == ["submit"]


def test_a_stream_is_not_given_up_because_neither_its_checkpoint_nor_kafka_can_be_read(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It commits nothing while Kafka is away; whether it hangs shows in its checkpoint alone."""
    world.stream = a_stream(restart=NoRestart(), stall_after=60)
    world.control().submit(submission="a")
    run = world.says("STARTING", "RUNNING", ago=120)
    run.heartbeat = datetime.now(UTC).isoformat()
    world.files.write(run.path, run.to_json())

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError("denied")

    def no_answer(*_: Any) -> None:
        raise KafkaUnreachable("BrokersDown")

    monkeypatch.setattr(source_position, "read_checkpoint", denied)
    monkeypatch.setattr(source_position, "shared_admin", no_answer)
    with pytest.raises(PermissionError, match="denied"):
        world.control(kafka={"bootstrap.servers": "not-asked.invalid:1"}).submit(submission="a")
    assert (len(world.runner.started), world.runner.killed) == (1, [])


def test_a_submit_attaches_to_a_driver_that_has_written_no_run_record_yet(world: Deployment) -> None:
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
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    write_intent(world.files, replace(intent_of(world), time=long_ago))
    assert world.control().status().state == "LOST"
    assert world.control().submit(submission="a").state == "STARTING"
    assert len(world.runner.started) == 1
    assert kinds(world) == ["submit", "restart"]


def test_a_submit_that_failed_is_noted_with_its_reason(world: Deployment) -> None:
    def fail(token: str) -> None:
        raise SubmitFailed("QueueMissing")

    world.runner.before = fail
    with pytest.raises(SubmitFailed, match="QueueMissing"):
        world.control().submit()
    status = world.control().status()
    assert (status.state, status.reason) == ("FAILED", "QueueMissing")
    assert kinds(world) == ["submit"]


def test_a_submit_of_which_the_outcome_is_unknown_is_no_failed_one(world: Deployment) -> None:
    """The cluster did not answer after spark-submit: its driver is found by its token, and no second one is started."""

    def no_answer(token: str) -> None:
        raise RunnerError("the cluster does not answer")

    world.runner.after = no_answer
    with pytest.raises(RunnerError):
        world.control().submit(submission="a")
    world.runner.after = lambda token: None
    assert intent_of(world).failed is None
    assert world.control().submit(submission="a").state == "STARTING"
    assert (len(world.runner.started), kinds(world)) == (1, ["submit"])


def test_a_stream_that_was_stopped_is_not_started_again_by_a_retry_of_its_submit(world: Deployment) -> None:
    world.control().submit(submission="a")
    world.says("STARTING", "RUNNING", "STOPPED")
    assert world.control().submit(submission="a").state == "STOPPED"
    assert (len(world.runner.started), kinds(world)) == (1, ["submit"])


@pytest.mark.parametrize(("ended", "submission"), [("STOPPED", "b"), ("STOPPED", None), ("FINISHED", "a")])
def test_a_stream_that_ended_well_is_started_again_by_a_submit(
    world: Deployment, ended: str, submission: str | None
) -> None:
    world.control().submit(submission="a")
    world.says("STARTING", "RUNNING", ended)
    assert world.control().submit(submission=submission).state == "STARTING"
    assert len(world.runner.started) == 2
    assert kinds(world) == ["submit", "submit"]


def test_a_refused_start_leaves_no_trace(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        control_module,
        "read_start_conditions",
        start_with(kafka_error="BrokersDown"),
    )
    with pytest.raises(PreflightRefused) as refused:
        world.control().submit()
    assert [(f.kind, f.what) for f in refused.value.findings] == [("kafka_unreachable", "BrokersDown")]  # type: ignore[attr-defined]
    assert (world.runner.started, read_intent(world.files), read_history(world.files)) == ([], None, [])


def test_an_override_is_logged(
    world: Deployment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        control_module,
        "read_start_conditions",
        start_with(kafka_error="BrokersDown"),
    )
    world.control().submit(allow=["kafka_unreachable"])
    assert len(world.runner.started) == 1
    assert "(allowed): kafka_unreachable: BrokersDown" in caplog.text


def test_a_driver_accepts_lost_data_only_if_its_submit_allows_it(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=20)
    control = world.control()
    control.resume(control.look_before_start(), allow=["data_lost"])
    ranges = (LostRange("orders_in", 0, 5, 9), LostRange("orders_in", 1, 7, 8))
    lost = [PreflightFinding("data_lost", "Offsets are gone.", "Risk.", "Nothing.", lost=(one,)) for one in ranges]
    monkeypatch.setattr(control_module, "check", lambda *_: lost)
    world.fails(ago=20)
    control = world.control()
    with pytest.raises(PreflightRefused):
        control.resume(control.look_before_start())
    control.resume(control.look_before_start(), allow=["data_lost"])
    # Accepted are the very ranges that preflight has found. Permission alone changes nothing as long as nothing is lost.
    assert [request.accepted_loss for request in world.requests] == [(), (), ranges]


def test_a_stream_without_a_runner_cannot_be_started(world: Deployment) -> None:
    with pytest.raises(NotStartable, match="no runner"):
        world.control(runner=None).submit()


# --- the budget of a submission ----------------------------------------------------------------------------------------
