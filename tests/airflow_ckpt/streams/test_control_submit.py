"""Submit: nothing is started twice, and no budget is escaped."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.runners.base import RUNNING, DriverState, SubmitFailed
from airflow_ckpt.streams import control as control_module
from airflow_ckpt.streams.control import GivenUp, Order
from airflow_ckpt.streams.intent import KEEP_INTENTS, read_intent, write_intent
from airflow_ckpt.streams.preflight import Facts, PreflightFinding, PreflightRefused
from airflow_ckpt.streams.restart import NoRestart
from airflow_ckpt.streams.restarts import read_history
from ckpt_stream.data_loss import Lost
from ckpt_stream.run_record import INTENTS, listing
from tests.airflow_ckpt.streams.fakes import Deployment, intent_of, kinds, sleep_until
from tests.airflow_ckpt.streams.samples import a_stream

pytestmark = pytest.mark.unit


# --- submit ------------------------------------------------------------------------------------------------------------


def test_a_submit_starts_one_driver_and_notes_who_how_and_as_part_of_what(world: Deployment) -> None:
    status = world.control("dag.submit").submit(submission="dag run-1")
    assert (status.state, status.token) == ("STARTING", world.token)
    intent = intent_of(world)
    assert (intent.by, intent.runner, intent.token) == ("dag.submit", "process", world.token)
    assert "spark-submit" not in (world.files.read(intent.path) or ""), (
        "the command is nobody's business but this machine's"
    )
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
    long_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
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
    ranges = (Lost("orders_in", 0, 5, 9), Lost("orders_in", 1, 7, 8))
    lost = [PreflightFinding("data_lost", "Offsets are gone.", "Risk.", "Nothing.", lost=(one,)) for one in ranges]
    monkeypatch.setattr(control_module, "check", lambda *_: lost)
    world.fails(ago=20)
    control = world.control()
    with pytest.raises(PreflightRefused):
        control.resume(control.status())
    control.resume(control.status(), allow=["data_lost"])
    # Accepted are the very ranges that preflight has found. Permission alone changes nothing as long as nothing is lost.
    assert [order.accepted_loss for order in world.orders] == [(), (), ranges]


def test_nobody_knows_how_to_start_a_stream_without_a_runner(world: Deployment) -> None:
    with pytest.raises(CkptError, match="no runner"):
        world.control(runner=None).submit()


# --- the budget of a submission ----------------------------------------------------------------------------------------


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


def test_after_the_damaged_history_was_moved_away_the_driver_that_is_started_is_the_one_that_is_seen(
    world: Deployment,
) -> None:
    for _ in range(3):
        world.control().submit()
        world.fails()
    shutil.rmtree(world.folder / "_ckpt" / "restarts")
    assert world.control().submit().state == "STARTING"
    assert intent_of(world).token == world.token
    assert world.control().status().state == "STARTING"


def test_a_driver_that_the_version_before_submitted_is_found_and_not_started_twice(world: Deployment) -> None:
    """On YARN and Kubernetes minutes pass between a submit and the driver's first run record."""
    token, when = "0123456789ab", datetime.now(UTC).isoformat(timespec="milliseconds")
    world.runner.drivers[token] = DriverState(RUNNING, "accepted")
    intent = {
        "token": token, "time": when, "by": "a task", "runner": "process", "stream": world.stream.as_dict(),
        "handle": None, "command": {}, "killed": None, "failed": None,
    }  # fmt: skip
    world.files.write("_ckpt/intent.json", json.dumps({"format": 1, **intent}, indent=1, sort_keys=True))
    world.files.write("_ckpt/restarts.json", listing([{"kind": "submit", "time": when, "token": token}]))
    assert world.control().submit().state == "STARTING"
    assert world.runner.started == []
    assert intent_of(world).handle is not None


class NoDelete(FsspecFiles):
    """An account that may list, read and write, and not delete."""

    tried = 0

    def remove(self, name: str) -> None:
        self.tried += 1
        raise PermissionError(f"AccessDenied: {name}")


def test_an_account_without_the_right_to_delete_starts_a_stream_as_often_as_any_other(world: Deployment) -> None:
    world.files = files = NoDelete(str(world.folder))
    for _ in range(KEEP_INTENTS + 2):
        world.control().submit()
        world.fails()
    assert len(world.runner.started) == KEEP_INTENTS + 2
    assert len(files.names(INTENTS)) == KEEP_INTENTS + 2
    # The first refusal is enough for each of the two folders.
    assert 0 < files.tried < 2 * (KEEP_INTENTS + 2)


def test_a_stop_that_cannot_be_deleted_is_told_before_anything_is_claimed(world: Deployment) -> None:
    world.control().submit()
    world.fails()
    world.control().request_stop("maintenance")
    world.files = NoDelete(str(world.folder))
    with pytest.raises(CkptError, match=r"_ckpt/stop\.json") as told:
        world.control().submit()
    assert "right to delete" in str(told.value)
    assert kinds(world) == ["submit"]
    assert len(world.runner.started) == 1
