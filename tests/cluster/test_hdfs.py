"""A stream whose checkpoint is on a real HDFS: `hdfs://` for Spark, WebHDFS for Airflow."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.cli import app
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from ckpt_stream.protocol.run_files.record_files import RUNS
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.spark.hadoop_files import CheckpointFiles
from tests.support.hdfs import HdfsUnderTest
from tests.support.streams import StreamUnderTest, copy

# The first run downloads Hadoop, which takes minutes.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

Make = Callable[..., StreamUnderTest]

RECORDS, PER_BATCH = 400, 200


@pytest.fixture
def on_hdfs(hdfs: HdfsUnderTest, stream: Make) -> Make:
    """Makes streams as `stream` does, with the checkpoint on HDFS."""

    def make(*arguments: Any, **settings: Any) -> StreamUnderTest:
        local = stream(*arguments, **settings)
        path = f"/checkpoints/{local.name}"
        return replace(local, location=hdfs.uri + path, storage=seen_from_outside(hdfs, path))

    return make


def seen_from_outside(hdfs: HdfsUnderTest, path: str) -> FsspecFiles:
    return FsspecFiles(f"webhdfs://{hdfs.webhdfs['host']}:{hdfs.webhdfs['port']}{path}", {"user": hdfs.webhdfs["user"]})


def feed(stream: StreamUnderTest, first: int, count: int = RECORDS) -> list[str]:
    values = [f"value-{i:05d}" for i in range(first, first + count)]
    stream.feed(*values, keys=37)
    return values


def test_a_driver_killed_with_its_checkpoint_on_hdfs_resumes_and_every_record_is_there_once(
    on_hdfs: Make, hdfs: HdfsUnderTest
) -> None:
    under_test = on_hdfs("copy_topic", partitions=2, lanes=2, max_offsets_per_batch=PER_BATCH)
    expected = feed(under_test, 0)

    crashed = under_test.crash_at(crash_points.MID_PRODUCE, batch=1, lane=1)
    assert crashed.hit is not None, crashed.log[-3000:]
    assert not under_test.checkpoint.exists()
    assert (under_test.last_batch("offsets"), under_test.last_batch("commits")) == (1, 0)
    assert under_test.hidden() > 0, "no record of an aborted transaction is in the sink"

    expected += feed(under_test, len(expected))
    crashed = under_test.crash_at(crash_points.AFTER_COMMIT, batch=2, lane=0, master="local[1]")
    assert crashed.hit is not None, crashed.log[-3000:]
    assert (under_test.last_batch("offsets"), under_test.last_batch("commits")) == (2, 1)
    assert {r.lane for r in under_test.ledger() if r.batch == 2} == {0}

    ended = under_test.run()
    assert ended.code == 0, ended.log[-3000:]
    assert under_test.values() == expected

    expected += feed(under_test, len(expected), count=1)
    assert under_test.run().code == 0
    assert under_test.values() == expected
    runs = under_test.runs()
    assert [r.state for r in runs] == ["RUNNING", "RUNNING", "FINISHED", "FINISHED"]
    assert runs[0].reconciliation == Reconciliation(Resume.FRESH).line
    # Lane 0 of batch 1 was a neighbour of the one that died: it may have been done or not.
    assert runs[1].reconciliation.startswith("batch 1 in doubt: ")
    assert [r.reconciliation for r in runs[2:]] == [
        Reconciliation(Resume.IN_DOUBT_BEGUN, 2, (1,)).line,
        Reconciliation(Resume.CLEAN, 3).line,
    ]
    replayed = next(b for b in runs[2].batches if b["batch"] == 2)
    assert [lane["lane"] for lane in replayed["lanes"] if lane["skipped"]] == [0]
    ledger_and_checkpoint_agree(under_test)
    commands_find_it(under_test, hdfs)


def commands_find_it(stream: StreamUnderTest, hdfs: HdfsUnderTest) -> None:
    """What the command line says of a checkpoint on HDFS."""
    namenode = "http://{user}@{host}:{port}".format(**hdfs.webhdfs)
    where = ["--checkpoint", stream.location or "", "--webhdfs", namenode, "--json"]
    where += ["--bootstrap", stream.kafka["bootstrap.servers"]]
    verified = CliRunner().invoke(app, ["verify", stream.sink, "--sink-id", stream.name, *where])
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["verdict"] == "clean"
    rebuilt = CliRunner().invoke(app, ["ledger", "rebuild", stream.name, "--sink", stream.sink, "--lanes", "2", *where])
    assert rebuilt.exit_code == 0, rebuilt.output
    assert json.loads(rebuilt.stdout)["batch"] == stream.last_batch("commits")


def ledger_and_checkpoint_agree(stream: StreamUnderTest) -> None:
    newest = stream.last_batch("commits")
    assert newest == stream.last_batch("offsets")
    ledger = stream.ledger()
    assert sorted((r.batch, r.lane) for r in ledger) == [(b, lane) for b in range((newest or 0) + 1) for lane in (0, 1)]
    for record in ledger:
        assert record.digest == input_digest(stream.files.read(f"offsets/{record.batch}") or "")


def test_the_same_crash_with_sparks_own_sink_shows_duplicates(on_hdfs: Make) -> None:
    under_test = on_hdfs("copy_topic", guarantee="at_least_once")
    expected = feed(under_test, 0)
    crashed = under_test.crash_at(crash_points.AFTER_LAST_LANE)
    assert crashed.hit is not None, crashed.log[-3000:]
    assert under_test.run().code == 0
    assert under_test.values() == sorted(expected * 2)


def test_the_run_record_is_whole_whenever_it_is_read(spark: Any, hdfs: HdfsUnderTest, on_hdfs: Make) -> None:
    under_test = on_hdfs(max_offsets_per_batch=20, heartbeat=0.1)
    feed(under_test, 0)
    outcome: list[tuple[int, str]] = []
    driver = threading.Thread(target=lambda: outcome.append(under_test.drive(spark, copy)))
    driver.start()
    texts: set[str] = set()
    while driver.is_alive():
        found = under_test.files.names(RUNS)
        texts |= {
            text for name in found if name.endswith(".json") and (text := under_test.files.read(f"{RUNS}/{name}"))
        }
    assert outcome[0][0] == 0, outcome
    seen = [RunRecord.from_json(text) for text in texts]
    assert "RUNNING" in {r.state for r in seen}
    assert len({len(r.batches) for r in seen}) > 5, "the record did not grow while it was read"
    (last,) = under_test.runs()
    assert (last.state, last.totals["records"]) == ("FINISHED", RECORDS)
    # Nothing is left of the files that became the record.
    assert under_test.files.names(RUNS) == [f"{last.run}.json"]


@pytest.mark.parametrize("writer_is_outside", [False, True])
def test_a_file_that_is_replaced_while_it_is_read_is_the_former_or_the_new_one(
    spark: Any, hdfs: HdfsUnderTest, writer_is_outside: bool
) -> None:
    """Run records go from the driver to Airflow, stop requests the other way."""
    path = f"/replaced/{uuid.uuid4().hex}"
    driver, outside = CheckpointFiles(spark, hdfs.uri + path), seen_from_outside(hdfs, path)
    writer, reader = (outside, driver) if writer_is_outside else (driver, outside)
    texts = ("short", "a long text " * 2000)
    writer.write("file", texts[0])

    def replace_it() -> None:
        for i in range(1, 60):
            writer.write("file", texts[i % 2])

    thread = threading.Thread(target=replace_it)
    thread.start()
    seen: list[str | None] = []
    while thread.is_alive():
        seen.append(reader.read("file"))
    assert {None if text is None else len(text) for text in seen} == {len(text) for text in texts}
    assert set(seen) == set(texts)
    assert outside.names("") == ["file"]


def test_of_driver_and_airflow_that_create_a_file_at_once_one_does(spark: Any, hdfs: HdfsUnderTest) -> None:
    path, rounds = f"/created/{uuid.uuid4().hex}", 30
    both = CheckpointFiles(spark, hdfs.uri + path), seen_from_outside(hdfs, path)
    together = threading.Barrier(2)

    def create_each(files: CheckpointFiles | FsspecFiles) -> list[bool]:
        done = []
        for n in range(rounds):
            together.wait(60)
            done.append(files.create(f"claims/{n:08d}.json", type(files).__name__))
        return done

    with ThreadPoolExecutor(2) as threads:
        driver, outside = threads.map(create_each, both)
    assert [a + b for a, b in zip(driver, outside, strict=True)] == [1] * rounds
    for n in range(rounds):
        winner = both[0] if driver[n] else both[1]
        assert both[1].read(f"claims/{n:08d}.json") == type(winner).__name__
    assert both[1].names("claims") == [f"{n:08d}.json" for n in range(rounds)]
