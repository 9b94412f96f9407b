"""A request to stop reaches the driver that lives, and keeps a broken stream from being restarted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_ckpt.exceptions import PreflightRefused
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.streams.driver_state import ENDED, VANISHED, DriverState
from airflow_ckpt.supervision import control as control_module
from airflow_ckpt.supervision import source_position
from airflow_ckpt.supervision.intent_files import write_intent
from airflow_ckpt.supervision.launch_request import LaunchRequest
from ckpt_stream.machine.process_identity import boot_id
from ckpt_stream.protocol.run_files import record_files, stop_requests
from tests.airflow_ckpt.supervision.fakes import Deployment, intent_of, kinds, sleep_until, stalled
from tests.airflow_ckpt.supervision.samples import start_with

pytestmark = pytest.mark.unit


def test_a_stop_is_asked_of_the_run_that_lives(world: Deployment) -> None:
    world.control().submit()
    run = world.says("STARTING", "RUNNING")
    world.control("bob").request_stop("maintenance")
    request = record_files.parse_document(world.files.read(record_files.STOP) or "", "stop request")
    assert (request["run"], request["by"], request["reason"]) == (run.run, "bob", "maintenance")


def test_a_stop_that_is_asked_before_the_drivers_first_run_record_is_meant_for_it_and_for_no_later_one(
    world: Deployment,
) -> None:
    world.control().submit()
    world.control().request_stop()
    text = world.files.read(record_files.STOP) or ""
    assert stop_requests.asks_to_stop(text, world.says("STARTING"))
    assert not stop_requests.asks_to_stop(text, world.says("STARTING", token="the-next-one"))


@pytest.mark.parametrize("state", ["NEW", "STOPPED", "FINISHED"])
def test_a_stop_of_a_stream_that_runs_no_more_and_is_not_to_run_changes_nothing(world: Deployment, state: str) -> None:
    if state != "NEW":
        world.control().submit()
        world.says("STARTING", "RUNNING", state)
    assert world.control().request_stop().state == state
    assert world.files.read(record_files.STOP) is None


def lost(world: Deployment) -> None:
    world.says("STARTING", "RUNNING", ago=20)
    world.runner.drivers[world.token] = DriverState(VANISHED, "gone")


def failed(world: Deployment) -> None:
    world.fails(ago=11)


def submit_failed(world: Deployment) -> None:
    del world.runner.drivers[world.token]
    write_intent(
        world.files, replace(intent_of(world), handle=None, failed={"message": "no", "time": record_files.now()})
    )


Break = Callable[[Deployment], None]
BREAKS = pytest.mark.parametrize("breaks", [failed, lost, submit_failed])


@BREAKS
def test_a_stream_that_is_stopped_while_it_is_broken_is_not_restarted(world: Deployment, breaks: Break) -> None:
    world.control().submit(submission="a")
    breaks(world)
    look = world.control().look_before_start()
    broken = look.status
    found = world.control("bob").request_stop("maintenance")
    assert (found.state, found.broken_since) == ("STOPPED", None)
    for word in ("bob", "maintenance", broken.state, broken.reason):
        assert word in found.reason
    control = world.control()
    plan = control.plan_resume(control.status())
    assert (plan.action, "bob" in plan.reason) == ("none", True)
    # Neither does a task that looked before the request, nor the same submit again, as when its task is retried.
    assert control.resume(look).state == "STOPPED"
    assert control.submit(submission="a").state == "STOPPED"
    assert len(world.runner.started) == 1


@BREAKS
def test_a_later_submit_begins_again_and_the_stop_is_forgotten(world: Deployment, breaks: Break) -> None:
    world.control().submit(submission="a")
    breaks(world)
    world.control("bob").request_stop()
    assert world.control().submit(submission="b").state == "STARTING"
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "submit"])
    assert world.files.read(record_files.STOP) is None
    world.fails(ago=11)
    control = world.control()
    assert control.plan_resume(control.status()).action == "start"


@pytest.mark.parametrize("submission", ["b", None])
def test_a_new_submit_withdraws_the_stop_of_a_driver_that_lives(world: Deployment, submission: str | None) -> None:
    world.control().submit(submission="a")
    world.says("STARTING", "RUNNING")
    assert world.control("bob").request_stop().stop
    found = world.control().submit(submission=submission)
    assert (found.state, found.stop, world.files.read(record_files.STOP)) == ("RUNNING", None, None)
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

    monkeypatch.setattr(source_position, "source_ends", asked)
    assert world.control(kafka={"bootstrap.servers": "127.0.0.1:1"}).request_stop().stop


def test_a_request_that_the_driver_deleted_with_one_from_before_is_written_again(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING")
    write, written = world.files.write, []

    def deleted_at_once(name: str, text: str) -> None:
        write(name, text)
        if name == record_files.STOP:
            written.append(text)
            if len(written) == 1:
                world.files.remove(record_files.STOP)

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
    monkeypatch.setattr(
        control_module,
        "read_start_conditions",
        start_with(kafka_error="away"),
    )
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


def test_a_stop_that_its_driver_obeyed_names_who_asked_and_why(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=20)
    world.control("bob").request_stop("maintenance")
    world.says("STOPPED")
    found = world.control().status()
    assert (found.state, found.stop) == ("STOPPED", None)
    assert "bob" in found.reason
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
    assert control.resume(control.look_before_start()).state == "STOPPED"
    # Nothing is left behind that a driver would have to clean up.
    assert (len(world.runner.started), len(world.requests), kinds(world)) == (1, 1, ["submit"])


def test_a_restart_withdraws_no_stop_that_comes_too_late_to_prevent_it(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver finds the request, and ends after its first batch."""
    world.control().submit()
    world.fails(ago=11)
    control, launch = world.control(), world._launch

    def late(request: LaunchRequest) -> Launch:
        world.control("bob").request_stop()
        return launch(request)

    monkeypatch.setattr(control, "_launch", late)
    found = control.resume(control.look_before_start())
    assert (found.state, (found.stop or {})["by"]) == ("STARTING", "bob")
    assert len(world.runner.started) == 2


def test_a_stop_that_crosses_a_restart_reaches_the_driver_that_was_started(world: Deployment) -> None:
    """The user who stops it has seen the stream FAILED; it is restarted before the request is written."""
    world.control().submit()
    world.fails(ago=11)
    asking, write = world.control("bob"), world.files.write

    def late(name: str, text: str) -> None:
        if name == record_files.STOP and len(world.runner.started) == 1:
            control = world.control()
            control.resume(control.look_before_start())
        write(name, text)

    world.files.write = late  # type: ignore[method-assign]
    found = asking.request_stop()
    assert (found.state, found.token) == ("STARTING", world.token)
    assert stop_requests.asks_to_stop(world.files.read(record_files.STOP) or "", world.says("STARTING"))


def test_a_stalled_driver_that_was_asked_to_stop_is_ended_and_not_started_again(world: Deployment) -> None:
    stalled(world)
    assert world.control("bob").request_stop().state == "STALLED"
    control = world.control()
    assert control.resume(control.look_before_start()).state == "STOPPED"
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
    world.files.write(record_files.STOP, "{")
    assert world.control().status().state == "FAILED"
