"""A lane's input is cut in the middle of a large batch, for real: by a time limit, by a sibling, by the death of the JVM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN
from airflow_ckpt.verify.verification import verify
from ckpt_stream.protocol.ledger.ledger_record import BATCH
from tests.faults.paused_rows import ROWS, transform
from tests.support.kafka_io import read_all
from tests.support.streams import Running, StreamUnderTest
from tests.support.waiting import wait_for

pytestmark = pytest.mark.faults

Make = Callable[..., StreamUnderTest]

APPLICATION = str(Path(__file__).parent / "paused_rows")
RECORDS = 6


def feed(stream: StreamUnderTest) -> list[str]:
    stream.feed(*(f"value-{i}" for i in range(RECORDS)), keys=RECORDS)
    return sorted(f"value-{i}-{n}" for i in range(RECORDS) for n in range(ROWS))


def check_whole_lanes(stream: StreamUnderTest) -> None:
    """What is in the sink is what whole lanes have written."""
    assert len(stream.committed()) == sum(record.records for record in stream.ledger())


def check_clean(stream: StreamUnderTest) -> None:
    config = stream.config()
    verdict = verify(Subject(config.name, stream.kafka, config.sink_id, config.sink, config.group, stream.files))
    assert (verdict.verdict, verdict.sink_committed) == (CLEAN, RECORDS * ROWS), verdict.findings


def test_a_batch_that_is_cancelled_for_its_time_limit_leaves_nothing_in_the_sink(spark: Any, stream: Make) -> None:
    under_test = stream()
    expected = feed(under_test)
    code, line = under_test.drive(spark, transform, batch_timeout=3, options={"pause": 1000})
    assert code == 1
    assert "BatchTimeout" in line
    assert (len(under_test.committed()), under_test.ledger()) == (0, [])
    code, line = under_test.drive(spark, transform)
    assert code == 0, line
    assert under_test.values() == expected
    check_clean(under_test)


def test_a_lane_that_fails_leaves_its_siblings_whole_or_unwritten(spark: Any, stream: Make) -> None:
    def broken(events: DataFrame) -> DataFrame:
        value = F.when(F.col("value") == "value-0-0", F.repeat(F.lit("x"), 2_000_000)).otherwise(F.col("value"))
        return transform(events).withColumn("value", value)

    under_test = stream(lanes=3)
    expected = feed(under_test)
    code, line = under_test.drive(spark, broken)
    assert (code, "MSG_SIZE_TOO_LARGE" in line) == (1, True), line
    assert len(under_test.ledger()) < 3
    check_whole_lanes(under_test)
    code, line = under_test.drive(spark, transform)
    assert code == 0, line
    assert under_test.values() == expected
    check_clean(under_test)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_jvm_that_is_killed_alone_leaves_no_lane_half_written(stream: Make, lanes: int, tmp_path: Path) -> None:
    """The Python workers outlive the JVM: long enough to commit what they have, if they took it for the whole."""
    env = out_of_reach(tmp_path)
    under_test = stream(APPLICATION, lanes=lanes)
    expected = feed(under_test)
    # With one lane the rows come slowly, batch by batch; three lanes take them from the shuffle, slowed by their client.
    pace: dict[str, Any] = {"options": {"pause": 1000}} if lanes == 1 else {}
    kafka = under_test.kafka if lanes == 1 else {**under_test.kafka, "queue.buffering.max.messages": 20}
    unwritten = 0
    for _ in range(2):
        before = uncommitted(under_test)
        running = under_test.start(kafka=kafka, env=env, **pace)
        wait_for_records(under_test, running, before)
        kill_jvm_and_let_workers_end(running)
        check_whole_lanes(under_test)
        unwritten += sum(record.kind == BATCH for record in under_test.ledger()) < lanes
    assert unwritten, "every lane was written before the JVM was killed"
    if lanes == 1:
        assert len(under_test.committed()) == 0
    ended = under_test.run()
    assert ended.code == 0, ended.log[-3000:]
    assert under_test.values() == expected
    check_clean(under_test)


def out_of_reach(folder: Path) -> dict[str, str]:
    """An environment in which the death of PySpark's daemon does not reach its workers, as on a machine that is too busy."""
    folder = folder / "python"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import os\nos.register_at_fork(after_in_child=os.setsid)\n")
    return {"PYTHONPATH": str(folder)}


def kill_jvm_and_let_workers_end(running: Running) -> None:
    family = psutil.Process(running.process.pid).children(recursive=True)
    workers = [p for p in family if p.ppid() != running.process.pid]  # children of PySpark's daemon
    assert any(not has_ended(worker) for worker in workers), "no lane was at work"
    os.kill(running.process.pid, signal.SIGKILL)  # spark-submit has become the JVM
    for process in family:
        wait_for(partial(has_ended, process), "a Python process to end")
    running.wait()


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def uncommitted(stream: StreamUnderTest) -> int:
    return len(read_all(stream.kafka, stream.sink, isolation="read_uncommitted"))


def wait_for_records(stream: StreamUnderTest, running: Running, before: int) -> None:
    def more() -> bool:
        assert running.process.poll() is None, f"the driver ended too early:\n{running.log.read_text()[-4000:]}"
        return uncommitted(stream) > before

    wait_for(more, "records of the lane in Kafka")
