"""`airflow-ckpt stop`, and `resume` after it, on a stream whose cluster is in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_ckpt.cli import app, status, stop
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.supervision import control as control_module
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.run_record import Failure
from tests.airflow_ckpt.supervision.fakes import Deployment, kinds
from tests.airflow_ckpt.supervision.samples import a_stream, start_with

pytestmark = pytest.mark.unit


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment(tmp_path, a_stream(checkpoint=str(tmp_path)))
    monkeypatch.setattr(
        control_module,
        "read_start_conditions",
        start_with(topics={"orders_in": None}),
    )
    monkeypatch.setattr(control_module, "check", lambda *_: [])
    monkeypatch.setattr(status, "control_to_look", lambda *_: made.control("ann@desk"))
    for command in (stop, status):
        monkeypatch.setattr(command, "control_to_start", lambda *_: (made.control("ann@desk"), None))
    return made


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "250"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


def as_json(*arguments: str) -> dict[str, Any]:
    code, out = run(*arguments, "--json")
    assert code == 0
    value: dict[str, Any] = json.loads(out)
    return value


def test_a_failed_stream_is_stopped_by_one_command_and_started_again_by_another(world: Deployment) -> None:
    world.control().submit()
    world.fails(ago=20)
    code, out = run("stop", "stream", "--reason", "[maintenance]")
    assert code == 0
    for word in ("STOPPED", "ann@desk", "[maintenance]", "Kafka is away", f"resume {world.folder} --new-budget"):
        assert word in out.replace("\n", "")
    assert as_json("resume", "stream", "--wait", "0")["state"] == "STOPPED"
    assert len(world.runner.started) == 1
    assert as_json("resume", "stream", "--wait", "0", "--new-budget")["state"] == "STARTING"
    assert (len(world.runner.started), kinds(world)) == (2, ["submit", "submit"])


def test_a_stop_says_what_it_did(world: Deployment) -> None:
    assert as_json("stop", "stream") == {
        "run": None, "state": "NEW", "before": "NEW", "requested": False, "reason": "it was never started",
    }  # fmt: skip
    world.control().submit()
    world.says("STARTING", "RUNNING")
    assert run("stop", "stream", "--wait", "0")[0] == 0
    assert "requested by ann@desk" in run("status", "stream")[1]
    world.says("STOPPED")
    value = as_json("stop", "stream")
    assert (value["state"], value["before"], value["requested"]) == ("STOPPED", "STOPPED", False)
    assert "ann@desk" in value["reason"]


def test_the_advice_for_a_stream_that_was_started_by_hand_names_no_command_that_cannot_work(
    world: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control().submit()
    world.fails(ago=20)
    missing = CkptError("start it as it was started before")
    monkeypatch.setattr(stop, "control_to_start", lambda *_: (world.control("ann@desk"), missing))
    out = run("stop", "stream")[1]
    assert (str(missing) in out, "--new-budget" in out) == (True, False)


def test_a_stop_that_the_driver_has_not_begun_can_be_withdrawn(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    world.control("bob").request_stop()
    value = as_json("stop", "stream", "--cancel")
    assert (value["state"], value["withdrawn"], value["stopping"]) == ("RUNNING", True, False)
    assert world.files.read(record_files.STOP) is None
    assert not as_json("stop", "stream", "--cancel")["withdrawn"]
    world.fails(ago=20)
    world.control("bob").request_stop()
    value = as_json("stop", "stream", "--cancel")
    assert (value["before"], value["state"], value["withdrawn"]) == ("STOPPED", "FAILED", True)


def test_a_stop_that_the_driver_has_begun_cannot_be_withdrawn(world: Deployment, slept: list[float]) -> None:
    world.control().submit()
    record = world.says("STARTING", "RUNNING")
    world.control("bob").request_stop()
    record.stopping = True
    world.files.write(record.path, record.to_json())
    code, out = run("stop", "stream", "--cancel")
    assert (code, "bob" in out, "stopping" in out) == (1, False, True)


@pytest.mark.parametrize("message", ["Connection to broker/[/10.0.0.1:9092] failed", "expected [/] or [bold]"])
def test_a_status_shows_a_failure_as_it_is(world: Deployment, message: str) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING", "FAILED", failure=Failure("SinkError", message))
    assert message in run("status", "stream")[1]


def test_the_exit_code_shows_that_the_driver_has_not_stopped_in_time(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    assert run("stop", "stream", "--wait", "0.01")[0] == 1
