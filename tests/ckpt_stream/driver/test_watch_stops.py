"""The watch over a query that is to end: on a request, or at an offset."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import watch
from ckpt_stream.errors import StopBeforeBatch
from ckpt_stream.protocol.run_files.record_files import STOP
from ckpt_stream.protocol.run_files.run_record import FINISHED, STOPPED
from ckpt_stream.protocol.run_files.stop_requests import stop_request
from tests.ckpt_stream.driver.meanwhile import Meanwhile
from tests.ckpt_stream.driver.watch_world import World, nothing

pytestmark = pytest.mark.unit


@pytest.fixture
def world(files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(files, monkeypatch)


@pytest.fixture
def storage(files: FsspecFiles) -> Meanwhile:
    return Meanwhile(files.root)


@pytest.fixture
def on_storage(storage: Meanwhile, monkeypatch: pytest.MonkeyPatch) -> World:
    """A run on a storage that changes in the middle of a look."""
    return World(storage, monkeypatch)


# Requests


def test_a_stop_request_waits_for_the_batch_that_is_written_to_be_committed(world: World) -> None:
    stops: list[int] = []

    def begin() -> None:
        world.progress.current = (0, watch.time.monotonic())
        world.stop_requested()

    def look(then: Callable[[], None]) -> Callable[[], None]:
        return lambda: (stops.append(world.query.stops), then())[-1]

    state = world.until_the_end(
        begin, look(lambda: world.write(0)), look(nothing), look(lambda: world.commit(0)), nothing, nothing
    )
    assert (state, stops, world.query.stops) == (STOPPED, [0, 0, 0], 1)
    assert world.noted() == [0]
    assert world.record.stopping is True


def test_a_stop_request_for_another_run_is_not_obeyed(world: World) -> None:
    other = stop_request("ann", "", "20250101T000000.000000-x")
    document = {**json.loads(other), "time": "2025-01-01T00:00:00.000+00:00"}
    world.files.write(STOP, json.dumps(document))
    assert world.until_the_end(nothing, nothing) == FINISHED
    assert (world.query.stops, world.record.stopping) == (0, False)


def test_a_batch_that_the_sink_refused_after_a_stop_request_is_no_failure(world: World) -> None:
    def refused() -> None:
        world.progress.current = (1, watch.time.monotonic())
        world.progress.error = StopBeforeBatch("batch 1")
        world.query.error = RuntimeError("Spark's own words for it")

    assert world.until_the_end(world.stop_requested, refused) == STOPPED


def test_a_failure_after_a_stop_request_is_still_a_failure(world: World) -> None:
    def begin() -> None:
        world.progress.current = (1, watch.time.monotonic())
        world.stop_requested()

    def fails() -> None:
        world.query.error = RuntimeError("the last batch failed")

    with pytest.raises(RuntimeError):
        world.until_the_end(begin, fails)
    assert world.progress.stopping


def test_a_run_finishes_at_the_offsets_at_which_it_stops(files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(files, monkeypatch, stop_at={"orders": {"0": 20}})

    def batch(number: int) -> Callable[[], None]:
        def done() -> None:
            assert not world.progress.stopping, "the offsets are not reached yet"
            world.write(number)
            world.commit(number)

        return done

    assert world.until_the_end(batch(0), batch(1), nothing, nothing) == FINISHED
    assert (world.query.stops, world.noted()) == (1, [0, 1])


@pytest.mark.parametrize(
    "end",
    [
        {"orders": {"0": 19, "1": 5}, "refunds": {"0": 7}},
        {"orders": {"0": 20, "1": 5}, "refunds": {"0": 6}},
        {"orders": {"0": 20}, "refunds": {"0": 7}},
        {"orders": {"0": 20, "1": 5}},
    ],
)
def test_a_run_finishes_only_when_every_partition_of_every_topic_has_reached_its_offset(
    files: FsspecFiles, end: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = {"orders": {"0": 20, "1": 5}, "refunds": {"0": 7}}
    world, stopping = World(files, monkeypatch, source=("orders", "refunds"), stop_at=reached), []

    def batch(number: int, end: Any) -> Callable[[], None]:
        def done() -> None:
            stopping.append(world.progress.stopping)
            world.write(number, end)
            world.commit(number)

        return done

    assert world.until_the_end(batch(0, end), batch(1, reached), nothing, nothing) == FINISHED
    assert (stopping, world.query.stops) == ([False, False], 1)


def test_a_request_that_is_withdrawn_while_the_run_takes_it_up_does_not_end_the_run(
    storage: Meanwhile, on_storage: World
) -> None:
    world = on_storage

    def requested() -> None:
        world.stop_requested()
        storage.then(lambda: storage.remove(STOP))

    assert world.until_the_end(requested, nothing, nothing) == FINISHED
    assert (world.query.stops, world.progress.stopping, world.record.stopping) == (0, False, False)


def test_a_request_that_is_withdrawn_after_the_run_took_it_up_changes_nothing(
    storage: Meanwhile, on_storage: World
) -> None:
    """A user who withdraws it then learns from the run record that the run ends."""
    world = on_storage

    def begin() -> None:
        world.progress.current = (0, watch.time.monotonic())
        world.stop_requested()

    def withdraw() -> None:
        storage.then(lambda: storage.remove(STOP))

    def done() -> None:
        world.write(0)
        world.commit(0)

    assert world.until_the_end(begin, withdraw, nothing, done, nothing) == STOPPED
    assert world.record.stopping is True
