"""A submission that is made again, as when a task is cleared, goes on with the restart budget that is there."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.exceptions import NO_MORE_RESTARTS, GivenUp, NotStartable, StorageError
from airflow_ckpt.streams.driver_state import RUNNING, DriverState
from airflow_ckpt.streams.restart_strategies import NoRestart
from airflow_ckpt.supervision.intent_files import KEEP_INTENTS
from airflow_ckpt.supervision.launch_request import LaunchRequest
from ckpt_stream.protocol.run_files.record_files import INTENTS, list_to_json
from tests.airflow_ckpt.supervision.fakes import FAILURE, Deployment, intent_of, kinds, sleep_until
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit


def test_clearing_a_task_goes_on_with_the_budget_that_is_there(world: Deployment, slept: list[float]) -> None:
    world.control().submit(submission="dag run-1")
    for _ in range(3):
        world.fails(ago=11)
        world.control().submit(submission="dag run-1")
    assert kinds(world) == ["submit", "restart", "restart", "restart"]
    world.fails(ago=11)
    with pytest.raises(GivenUp, match=": ".join(FAILURE)) as given_up:
        world.control().submit(submission="dag run-1")
    assert given_up.value.kind == NO_MORE_RESTARTS
    assert len(world.runner.started) == 4


def test_clearing_a_task_keeps_the_pause(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit(submission="dag run-1")
    world.fails(ago=4)
    slept = sleep_until(monkeypatch, lambda: world.fails(ago=11))
    world.control().submit(submission="dag run-1")
    assert [round(pause) for pause in slept] == [6]
    assert kinds(world) == ["submit", "restart"]


def test_a_stream_that_another_user_restarts_during_the_pause_is_attached_to(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit(submission="dag run-1")
    world.fails(ago=4)

    def restarted() -> None:
        control = world.control(by="the watchdog")
        control.resume(control.look_before_start())
        world.says("STARTING", "RUNNING")

    sleep_until(monkeypatch, restarted)
    assert world.control().submit(submission="dag run-1").state == "RUNNING"
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "restart"])


def test_where_it_cannot_be_started_no_attempt_counts(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=11)
    control = world.control(runner=None)
    with pytest.raises(NotStartable):
        control.resume(control.look_before_start())
    with pytest.raises(NotStartable):
        control.submit()
    assert kinds(world) == ["submit"]


def test_a_launch_that_cannot_be_made_is_no_attempt(world: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    world.control().submit()
    world.fails(ago=11)

    def no_files(request: LaunchRequest) -> Any:
        raise NotStartable("no files")

    monkeypatch.setattr(world, "_launch", no_files)
    for call in ("resume", "submit"):
        control = world.control()
        with pytest.raises(NotStartable, match="no files"):
            control.resume(control.look_before_start()) if call == "resume" else control.submit()
    assert kinds(world) == ["submit"]


def test_giving_up_names_the_command_for_a_new_budget(world: Deployment) -> None:
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
    world.files.write("_ckpt/restarts.json", list_to_json([{"kind": "submit", "time": when, "token": token}]))
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


def test_a_stop_that_cannot_be_deleted_is_refused_before_anything_is_claimed(world: Deployment) -> None:
    world.control().submit()
    world.fails()
    world.control().request_stop("maintenance")
    world.files = NoDelete(str(world.folder))
    with pytest.raises(StorageError, match=r"_ckpt/stop\.json") as told:
        world.control().submit()
    assert "right to delete" in str(told.value)
    assert kinds(world) == ["submit"]
    assert len(world.runner.started) == 1
