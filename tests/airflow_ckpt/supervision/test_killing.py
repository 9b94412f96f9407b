"""A kill is noted before the driver is gone, and taken back when it did not come about."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.exceptions import NotSubmitted, RunnerError
from airflow_ckpt.streams.driver_state import ENDED, UNKNOWN, DriverState
from tests.airflow_ckpt.supervision.fakes import Deployment, intent_of

pytestmark = pytest.mark.unit


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
    with pytest.raises(NotSubmitted, match="airflow-ckpt stop") as refused:
        world.control().kill()
    assert refused.value.kind == "no_driver_known"


def test_a_driver_that_cannot_be_reached_is_not_called_killed(world: Deployment) -> None:
    world.control().submit()
    world.says("STARTING", "RUNNING")
    world.runner.drivers[world.token] = DriverState(UNKNOWN, "on another machine")

    def refuse(token: str) -> None:
        raise RunnerError("OtherMachine")

    world.runner.on_kill = refuse
    with pytest.raises(RunnerError, match="OtherMachine"):
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
