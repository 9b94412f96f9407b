"""The watch over a query, with a query of the test's own: which batches count, and how a run ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import watch
from ckpt_stream.driver.batch_progress import BatchProgress, WrittenBatch
from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.driver.watch import Watch
from ckpt_stream.errors import BatchTimeout, StopBeforeBatch
from ckpt_stream.protocol.run_files.record_files import STOP
from ckpt_stream.protocol.run_files.run_record import FINISHED, RUNNING, STOPPED, RunRecord, path_of
from ckpt_stream.protocol.run_files.stop_requests import stop_request
from ckpt_stream.protocol.settings.config import StreamConfig

pytestmark = pytest.mark.unit

RUN = "20260101T000000.000000-t"
WAITING = {"message": "Waiting for data to arrive", "isDataAvailable": False}
BUSY = {"message": "Processing new data", "isDataAvailable": True}


class Query:
    """A query that is active until its steps are done or it is stopped; each look at it runs the next step."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.status: dict[str, Any] = BUSY
        self.stops = 0
        self.error: BaseException | None = None
        self.report: dict[str, Any] | None = None
        self._jsq = SimpleNamespace(lastProgress=self._last_progress)

    def _last_progress(self) -> Any:
        report = self.report
        if report is None:
            return None
        return SimpleNamespace(batchId=lambda: report["batchId"], json=lambda: json.dumps(report))

    @property
    def isActive(self) -> bool:
        if self.stops or not self.steps:
            return False
        self.steps.pop(0)()
        return True

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self) -> None:
        self.stops += 1


class World:
    """A run under watch."""

    def __init__(self, files: FsspecFiles, **settings: Any) -> None:
        self.files, self.query, self.progress = files, Query(), BatchProgress()
        self.record = RunRecord(RUN, "orders", "t")
        self.record.enter(RUNNING)
        self.mirrored: list[tuple[str, Any]] = []
        mirror: Any = SimpleNamespace(
            batch_written=lambda batch, end: self.mirrored.append(("written", batch)),
            batch_committed=lambda batch: self.mirrored.append(("committed", batch)),
            commit_if_due=lambda: None,
        )
        config = StreamConfig(
            name="orders", checkpoint=str(files.root), sink="orders-out", kafka={"bootstrap.servers": "localhost:9092"},
            **{"source": ("orders",), **settings},
        )  # fmt: skip
        self.watch = Watch(self.query, self.progress, files, Heartbeat(files, self.record), mirror, config, ())

    def until_the_end(self, *steps: Callable[[], None]) -> str:
        self.query.steps = list(steps)
        return self.watch.until_the_end()

    def write(self, batch: int, end: Any = None) -> None:
        """The sink has written a batch."""
        self.progress.current = None
        end = end or {"orders": {"0": 10 * batch + 10}}
        lane = {"lane": 0, "records": 4, "dead_letters": 1, "skipped": False, "differs": False}
        self.progress.written.append(WrittenBatch(batch, "begun", "ended", {}, end, (lane,)))

    def commit(self, batch: int) -> None:
        """Spark has written the batch's commit-log entry, and reports the batch."""
        self.files.write(f"commits/{batch}", "v1\n{}")
        self.report(batch)

    def report(self, batch: int, **more: Any) -> None:
        self.query.report = {"batchId": batch, "numInputRows": 5, **more}

    def stop_requested(self) -> None:
        self.files.write(STOP, stop_request("ann", "maintenance", RUN))

    def noted(self) -> list[int]:
        """The batches in the run record that others can read."""
        text = self.files.read(path_of(RUN))
        return [batch["batch"] for batch in RunRecord.from_json(text).batches] if text else []


def nothing() -> None:
    """A look at which nothing has happened."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUSY_SECONDS", "IDLE_SECONDS", "STOP_LOOK_SECONDS"):
        monkeypatch.setattr(watch, name, 0.0)


@pytest.fixture
def world(files: FsspecFiles) -> World:
    return World(files)


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


def test_a_batch_that_takes_longer_than_batch_timeout_ends_the_query(files: FsspecFiles) -> None:
    world = World(files, batch_timeout=60)

    def hangs() -> None:
        world.progress.current = (7, float("-inf"))

    with pytest.raises(BatchTimeout, match=r"\b7\b"):
        world.until_the_end(hangs, nothing)
    assert world.query.stops == 1
    assert isinstance(world.progress.error, BatchTimeout)


def test_a_batch_that_is_within_its_time_goes_on(files: FsspecFiles) -> None:
    world = World(files, batch_timeout=3600)

    def begins() -> None:
        world.progress.current = (7, watch.time.monotonic())

    assert world.until_the_end(begins, nothing) == FINISHED
    assert world.query.stops == 0


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


def test_a_run_finishes_at_the_offsets_at_which_it_stops(files: FsspecFiles) -> None:
    world = World(files, stop_at={"orders": {"0": 20}})

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
    files: FsspecFiles, end: dict[str, dict[str, int]]
) -> None:
    reached = {"orders": {"0": 20, "1": 5}, "refunds": {"0": 7}}
    world, stopping = World(files, source=("orders", "refunds"), stop_at=reached), []

    def batch(number: int, end: Any) -> Callable[[], None]:
        def done() -> None:
            stopping.append(world.progress.stopping)
            world.write(number, end)
            world.commit(number)

        return done

    assert world.until_the_end(batch(0, end), batch(1, reached), nothing, nothing) == FINISHED
    assert (stopping, world.query.stops) == ([False, False], 1)


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
