"""The watch over a query, with a query of the test's own: which batches count, and how a run ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import watch
from ckpt_stream.errors import BatchTimeout
from ckpt_stream.protocol.run_files.run_record import FINISHED
from tests.ckpt_stream.driver.watch_world import BUSY, WAITING, World, nothing

pytestmark = pytest.mark.unit


@pytest.fixture
def world(files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(files, monkeypatch)


# Which batches count


def test_a_batch_counts_when_its_commit_log_entry_is_there_and_not_before(world: World) -> None:
    seen: list[tuple[list[int], list[tuple[str, Any]]]] = []

    def look() -> None:
        seen.append((world.noted(), list(world.mirrored)))

    def reported_too_early() -> None:
        world.report(0)

    def committed() -> None:
        look()
        world.commit(0)

    assert world.until_the_end(lambda: world.write(0), reported_too_early, nothing, committed, look) == FINISHED
    assert seen == [
        ([], [("written", 0)]),
        ([0], [("written", 0), ("committed", 0)]),
    ]


def test_the_commit_log_is_not_listed_before_spark_reports_the_batch(world: World) -> None:
    """Each look would be a request to the storage, 200 of them a second."""
    asked: list[str] = []
    exists = world.files.exists
    world.watch.files = SimpleNamespace(  # type: ignore[assignment]
        exists=lambda name: bool(asked.append(name)) or exists(name), read=world.files.read
    )
    world.until_the_end(lambda: world.write(1), lambda: world.report(0), nothing)
    assert asked == ["commits/1"], "once, after the end of the query"


def test_a_batch_that_is_committed_when_the_query_ends_counts_even_without_a_report(world: World) -> None:
    world.files.write("commits/0", "v1\n{}")
    world.until_the_end(lambda: world.write(0))
    assert world.noted() == [0]
    assert world.record.batches[0]["input_rows"] is None


def test_a_batch_that_is_written_and_committed_after_the_last_look_counts(world: World) -> None:
    world.query.as_it_ends = lambda: (world.write(0), world.commit(0))
    assert world.until_the_end(nothing) == FINISHED
    assert (world.noted(), world.mirrored) == ([0], [("written", 0), ("committed", 0)])


def test_offsets_that_could_not_be_mirrored_are_tried_again_without_a_new_batch(world: World) -> None:
    world.until_the_end(lambda: world.write(0), lambda: world.commit(0), nothing, nothing)
    assert world.looks_of_mirror == [[], [0], [0], [0]]


def test_a_batch_without_a_commit_log_entry_at_the_end_does_not_count(world: World) -> None:
    world.until_the_end(lambda: world.write(0))
    assert (world.noted(), world.mirrored) == ([], [("written", 0)])


def test_a_report_of_another_batch_is_not_taken_for_the_batchs_own(world: World) -> None:
    def two_at_once() -> None:
        for batch in (0, 1):
            world.write(batch)
            world.commit(batch)

    world.until_the_end(two_at_once)
    assert [(b["batch"], b["input_rows"]) for b in world.record.batches] == [(0, None), (1, 5)]
    assert world.mirrored[2:] == [("committed", 0), ("committed", 1)]


def test_the_record_holds_what_the_sink_and_spark_report_of_a_batch(world: World) -> None:
    def step() -> None:
        world.write(0)
        world.commit(0)
        world.report(
            0,
            durationMs={"addBatch": 3},
            sources=[{"latestOffset": {"orders": {"0": 30}}, "endOffset": {"orders": {"0": 10}}}],
            observedMetrics={"ckpt_malformed": {"malformed": 2}, "ckpt_malformed_2": {"malformed": 1}, "other": {}},
        )

    world.until_the_end(step)
    (batch,) = world.record.batches
    assert (batch["records"], batch["dead_letters"], batch["input_rows"]) == (4, 1, 5)
    assert (batch["lag"], batch["malformed"], batch["durations_ms"]) == (20, 3, {"addBatch": 3})
    assert world.record.totals["records"] == 4


# How a run ends


def test_the_error_of_the_query_is_the_error_of_the_run(world: World) -> None:
    world.query.error = RuntimeError("QueryFailed")
    with pytest.raises(RuntimeError, match="QueryFailed"):
        world.until_the_end(nothing)


def test_a_query_that_ends_by_itself_has_finished(world: World) -> None:
    assert world.until_the_end(nothing) == FINISHED


def test_a_batch_that_takes_longer_than_batch_timeout_ends_the_query(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(files, monkeypatch, batch_timeout=60)

    def hangs() -> None:
        world.progress.current = (7, float("-inf"))

    with pytest.raises(BatchTimeout, match=r"\b7\b"):
        world.until_the_end(hangs, nothing)
    assert world.query.stops == 1
    assert isinstance(world.progress.error, BatchTimeout)


def test_a_batch_that_is_within_its_time_goes_on(files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(files, monkeypatch, batch_timeout=3600)

    def begins() -> None:
        world.progress.current = (7, watch.time.monotonic())

    assert world.until_the_end(begins, nothing) == FINISHED
    assert world.query.stops == 0


# Whether the stream waits for input


@pytest.mark.parametrize(
    ("status", "current", "idle"), [(WAITING, None, True), (BUSY, None, False), (WAITING, (0, float("inf")), False)]
)
def test_a_stream_is_idle_when_spark_found_no_input_and_no_batch_is_written(
    world: World, status: dict[str, Any], current: tuple[int, float] | None, idle: bool
) -> None:
    world.query.status, world.progress.current = status, current
    world.until_the_end(nothing)
    assert (world.record.idle == world.record.watched) is idle
    assert world.record.watched != ""
