"""`airflow-ckpt stop`, and `resume` after it, on a stream whose cluster is in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_ckpt.cli import app, status, stop
from airflow_ckpt.streams import control as control_module
from airflow_ckpt.streams.preflight import Facts
from tests.airflow_ckpt.streams.fakes import Deployment, kinds
from tests.airflow_ckpt.streams.samples import a_stream

pytestmark = pytest.mark.unit


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    made = Deployment(tmp_path, a_stream(checkpoint=str(tmp_path)))
    monkeypatch.setattr(control_module, "gather", lambda _, status: Facts(status, source={"orders_in": None}))
    monkeypatch.setattr(control_module, "check", lambda *_: [])
    for command in (stop, status):
        monkeypatch.setattr(command, "control_for", lambda *_: made.control("ann@desk"))
    monkeypatch.setattr(status, "control_to_start", lambda *_: (made.control("ann@desk"), None))
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


def test_a_stop_tells_what_it_did(world: Deployment) -> None:
    assert as_json("stop", "stream") == {
        "run": None, "state": "NEW", "before": "NEW", "requested": False, "reason": "it was never started",
    }  # fmt: skip
    world.control().submit()
    world.says("STARTING", "RUNNING")
    assert run("stop", "stream", "--wait", "0")[0] == 0
    assert "requested by ann@desk" in run("status", "stream")[1]
    world.says("STOPPED")
    told = as_json("stop", "stream")
    assert (told["state"], told["before"], told["requested"]) == ("STOPPED", "STOPPED", False)
    assert "ann@desk" in told["reason"]


def test_a_driver_that_does_not_obey_in_time_is_told_by_the_exit_code(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    assert run("stop", "stream", "--wait", "0.01")[0] == 1
