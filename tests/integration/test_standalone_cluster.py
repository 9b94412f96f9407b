"""A stream on a Spark standalone cluster of two workers: what runs on them comes in a zip, and one of them may die."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from ckpt_stream.protocol import crash_points
from tests.support.kafka_io import read_all
from tests.support.standalone import OUT_OF_REACH, StandaloneUnderTest, Worker
from tests.support.streams import Running, StreamUnderTest
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.faults, pytest.mark.slow]

Make = Callable[..., StreamUnderTest]

RECORDS = 600
#: Both the stream's records and Spark's parts of them are small, so that a batch has a middle.
SMALL_PARTS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50"}


@pytest.fixture
def cluster(standalone: StandaloneUnderTest) -> StandaloneUnderTest:
    """The cluster with both workers, even if the test before killed one."""
    standalone.start()
    return standalone


def feed(stream: StreamUnderTest, size: int = 100) -> list[str]:
    values = [f"value-{i:05d}-".ljust(size, "x") for i in range(RECORDS)]
    stream.feed(*values, keys=37)
    return values


@contextmanager
def standing_still(
    stream: StreamUnderTest,
    cluster: StandaloneUnderTest,
    *,
    lane: int,
    batch: int,
    conf: Mapping[str, str] | None = None,
    **changes: Any,
) -> Iterator[tuple[Running, Worker]]:
    """The stream runs until one Python worker stands still in the middle of a batch; returns that worker."""
    marker = stream.folder / "stands-still"
    order = {"point": crash_points.MID_PRODUCE, "kill": "worker", "once": str(marker), "lane": lane, "batch": batch}
    options = cluster.submit()
    options["conf"] |= {
        **SMALL_PARTS,
        **(conf or {}),
        f"spark.executorEnv.{crash_points.ENVIRONMENT}": json.dumps(order),
    }
    running = stream.start(**options, **changes)
    try:
        pid = wait_for(lambda: _who_stands_still(running, marker), "a Python worker to stand still")
        yield running, next(worker for worker in cluster.workers if worker.owns(pid))
    finally:
        if running.process.poll() is None:
            running.kill()


def _who_stands_still(running: Running, marker: Path) -> int | None:
    assert running.process.poll() is None, f"the driver ended too early:\n{running.log.read_text()[-4000:]}"
    text = marker.read_text() if marker.exists() else ""
    pid = json.loads(text)["pid"] if text else None
    return pid if pid and psutil.Process(pid).status() == psutil.STATUS_STOPPED else None


def uncommitted(stream: StreamUnderTest) -> int:
    return len(read_all(stream.kafka, stream.sink, isolation="read_uncommitted"))


def test_the_executors_get_ckpt_stream_only_from_the_zip(cluster: StandaloneUnderTest) -> None:
    def can_import(module: str) -> bool:
        argv = [str(cluster.python), "-c", f"import {module}"]
        return subprocess.run(argv, cwd="/", capture_output=True, check=False).returncode == 0

    assert can_import("confluent_kafka, pyspark")
    assert not can_import("ckpt_stream")


def test_a_worker_killed_in_the_middle_of_a_batch_costs_no_record_and_doubles_none(
    cluster: StandaloneUnderTest, stream: Make
) -> None:
    under_test = stream("copy_topic", partitions=2, lanes=2, max_offsets_per_batch=RECORDS // 2)
    expected = feed(under_test)
    with standing_still(under_test, cluster, batch=1, lane=1) as (running, worker):
        assert under_test.last_batch("commits") == 0
        assert uncommitted(under_test) > RECORDS // 2, "nothing of batch 1 is in Kafka"
        worker.kill()
        assert not worker.is_up
        wait_for(lambda: cluster.alive_workers_or_none() == 1, "the master to miss the worker")
        ended = running.wait()
    assert ended.code == 0, ended.log[-4000:]
    assert under_test.values() == expected
    # The fault hit: Spark lost the executor, and what it had written of its lane is there, aborted.
    assert "Lost executor" in ended.log
    assert under_test.hidden() > 0
    (run,) = under_test.runs()
    assert (run.state, run.totals["records"]) == ("FINISHED", RECORDS)
    assert sorted((r.batch, r.lane) for r in under_test.ledger()) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_lane_whose_input_is_lost_with_the_machine_that_held_it_is_written_whole_by_the_next_attempt(
    cluster: StandaloneUnderTest, stream: Make
) -> None:
    """The other machine dies while a lane is in the middle of its input: Spark cannot fetch the rest, and does it all again."""
    # Much more than a connection holds, fetched block by block: what the lane has not read is still on the other machine.
    fetching = {
        "spark.shuffle.readHostLocalDisk": "false",
        "spark.reducer.maxReqsInFlight": "1",
        "spark.reducer.maxSizeInFlight": "1k",
        "spark.shuffle.io.maxRetries": "0",
        # Both machines are there before the first task, so that each of them has about half of the blocks.
        "spark.cores.max": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # Spark ends the worker of a failed task; this one lives on, and could commit what it has.
        f"spark.executorEnv.{OUT_OF_REACH}": "1",
    }
    caught = False
    for _ in range(5):
        # Which blocks are on which machine is Spark's choice: until one had to be fetched that was lost.
        cluster.start()
        under_test = stream("copy_topic", partitions=16, lanes=3)
        expected = feed(under_test, size=60_000)
        with standing_still(under_test, cluster, batch=0, lane=0, conf=fetching) as (running, worker):
            (other,) = (w for w in cluster.workers if w is not worker)
            stopped = next(p for p in worker.family() if p.status() == psutil.STATUS_STOPPED)
            other.kill()
            stopped.resume()
            ended = running.wait()
        assert ended.code == 0, ended.log[-4000:]
        assert under_test.values() == expected
        assert sorted((r.batch, r.lane) for r in under_test.ledger()) == [(0, 0), (0, 1), (0, 2)]
        logs = [file.read_text(errors="replace") for file in cluster.folder.glob("work/*/*/stderr")]
        caught = any("Spark ended the lane's input before it was complete" in log for log in logs)
        if caught:
            assert "FetchFailed" in ended.log
            break
    assert caught, "the lane had all of its rows each time the other machine died"


@pytest.mark.slow
def test_the_same_fault_with_sparks_own_sink_doubles_records(cluster: StandaloneUnderTest, stream: Make) -> None:
    application = str(Path(__file__).parent / "held_copy")
    # One partition, so that whatever is in the sink came from the task that stands still.
    under_test = stream(application, guarantee="at_least_once")
    expected = feed(under_test, size=4000)
    with standing_still(under_test, cluster, batch=0, lane=0) as (running, worker):
        wait_for(lambda: under_test.committed(), "the first records in the sink")
        worker.kill()
        ended = running.wait()
    assert ended.code == 0, ended.log[-4000:]
    seen = under_test.values()
    assert set(seen) == set(expected)
    assert len(seen) > len(expected), "Spark's own sink should have written some records twice"
