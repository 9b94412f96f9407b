"""One run of the driver beside other runs of its checkpoint: living, dead and ended ones."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.machine.process_identity import this_driver
from ckpt_stream.protocol.run_files import restart_history
from ckpt_stream.protocol.run_files.record_files import RUNS
from ckpt_stream.protocol.run_files.run_record import (
    FAILED,
    FINISHED,
    KEEP_RUNS,
    RUNNING,
    STARTING,
    STOPPED,
    runs_in,
)  # fmt: skip
from tests.ckpt_stream.driver.driver_world import EARLIER, LATER, NotedWrites, World
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit


@pytest.fixture
def world(broker: FakeBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(broker, NotedWrites(str(tmp_path)), monkeypatch)


# Other drivers


def test_a_run_beside_a_living_one_is_refused_before_it_asks_kafka(world: World) -> None:
    world.other(EARLIER, STARTING, RUNNING)
    record = world.drive()
    assert (record.state, record.failure.error if record.failure else None) == (FAILED, "DriverAlive")
    assert (world.started, world.broker.calls) == ([], [])


def test_a_run_that_was_not_seen_at_the_first_look_is_seen_before_the_first_query(world: World) -> None:
    world.while_mirror_is_made = lambda: world.other(LATER, STARTING, RUNNING) and None
    record = world.drive()
    assert (record.state, record.failure.error if record.failure else None) == (FAILED, "DriverAlive")
    assert world.started == []


def test_a_run_that_was_there_first_is_never_passed_over_even_if_its_clock_is_ahead(world: World) -> None:
    world.other(LATER, STARTING)
    assert (record := world.drive()).failure is not None
    assert (record.failure.error, world.broker.calls) == ("DriverAlive", [])


def test_a_run_that_starts_at_the_same_time_and_is_younger_refuses_nothing(world: World) -> None:
    world.while_mirror_is_made = lambda: world.other(LATER, STARTING) and None
    assert world.drive().state == FINISHED


def test_only_the_newest_run_records_are_kept(world: World) -> None:
    runs = [f"20250101T{number:06d}.000000-earlier" for number in range(KEEP_RUNS + 2)]
    for run in runs:
        world.other(run, FINISHED)
    own = world.drive().run
    assert runs_in(world.files.names(RUNS)) == [*runs[2:], own]


@pytest.mark.parametrize("state", [FINISHED, STOPPED, FAILED])
def test_a_run_that_has_ended_refuses_nothing(world: World, state: str) -> None:
    world.other(EARLIER, STARTING, RUNNING, state)
    assert world.drive().state == FINISHED


def test_a_dead_driver_of_this_machine_refuses_nothing(world: World) -> None:
    world.other(EARLIER, STARTING, RUNNING, driver={**this_driver(1), "started": -1.0})
    assert world.drive().state == FINISHED


# Restarts


@pytest.mark.parametrize(
    ("states", "noted"),
    [
        ((STARTING, RUNNING, FAILED), ["FAILED"]),
        ((STARTING, RUNNING), ["LOST"]),
        ((STARTING, RUNNING, STOPPED), []),
        ((STARTING, RUNNING, FINISHED), []),
    ],
)
def test_a_restart_is_noted_if_the_run_before_did_not_end_well(
    world: World, states: tuple[str, ...], noted: list[str]
) -> None:
    world.other(EARLIER, *states, driver={**this_driver(1), "started": -1.0})
    record = world.drive()
    history = restart_history.read_newest(world.files)[1]
    assert [(e["after_state"], e["after_run"], e["run"]) for e in history] == [
        (state, EARLIER, record.run) for state in noted
    ]
