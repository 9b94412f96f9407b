"""A lane commits when all of its rows have come, and only then: inputs that fail behind several Arrow batches.

Spark hands a lane its rows in Arrow batches of 10,000. Every test here has lanes of several batches, because an input that
fails between two of them looks, from within the lane, like one that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ckpt_stream.driver import exactly_once
from tests.support.streams import StreamUnderTest

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]

RECORDS, TIMES = 5_000, 10
#: On a busy machine the JVM may fail before the lane has sent a row; such a try proves nothing and is made again.
TRIES = 5
#: The plan fails at this row, behind many others.
LATE_VALUE = f"value-{RECORDS - 100:05d}-0"


def exploded(events: DataFrame) -> DataFrame:
    """Each record ten times."""
    value = F.concat_ws("-", F.col("value").cast("string"), F.col("n").cast("string"))
    many = events.withColumn("n", F.explode(F.sequence(F.lit(0), F.lit(TIMES - 1))))
    return many.select("key", value.alias("value"))


def feed(stream: StreamUnderTest) -> list[str]:
    """The records, and what is to be in the sink."""
    stream.feed(*(f"value-{i:05d}" for i in range(RECORDS)), keys=997)
    return sorted(f"value-{i:05d}-{n}" for i in range(RECORDS) for n in range(TIMES))


@contextmanager
def arrow_batches_of(spark: Any, records: int) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, str(records))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def failing_at(rows: DataFrame, value: str) -> DataFrame:
    """The plan fails, in the JVM, when it comes to this row."""
    found = F.col("value") == F.lit(value).cast(rows.schema["value"].dataType)
    return rows.withColumn(
        "value", F.when(found, F.raise_error(F.lit("the plan fails here"))).otherwise(F.col("value"))
    )


@pytest.mark.parametrize("per_batch", [10_000, 500])
def test_a_plan_that_fails_behind_many_rows_commits_none_of_them(spark: Any, stream: Make, per_batch: int) -> None:
    for _ in range(TRIES):
        under_test = stream()
        expected = feed(under_test)
        with arrow_batches_of(spark, per_batch):
            code, line = under_test.drive(spark, lambda events: failing_at(exploded(events), LATE_VALUE))
        assert code == 1
        assert "the plan fails here" in line
        assert (len(under_test.committed()), under_test.ledger()) == (0, [])
        if under_test.hidden() > 0:
            break
    assert under_test.hidden() > 0, "in no try had the lane written anything when its input failed"

    code, line = under_test.drive(spark, exploded)
    assert code == 0, line
    assert under_test.values() == expected
    assert [run.failure.error if run.failure else None for run in under_test.runs()] == ["SparkRuntimeException", None]


def test_a_lane_of_three_whose_input_fails_behind_the_shuffle_commits_nothing(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails there in life is the fetch of another lane's rows; here it is put behind the shuffle by hand."""
    divide = exactly_once.into_lanes
    monkeypatch.setattr(exactly_once, "into_lanes", lambda *a: failing_at(divide(*a), LATE_VALUE))
    for _ in range(TRIES):
        under_test = stream(lanes=3)
        expected = feed(under_test)
        with arrow_batches_of(spark, 500):
            code, line = under_test.drive(spark, exploded)
        assert code == 1
        assert "the plan fails here" in line
        committed = {record.lane: record.records for record in under_test.ledger()}
        assert len(committed) < 3
        assert len(under_test.values()) == sum(committed.values())
        if under_test.hidden() > 0:
            break
    assert under_test.hidden() > 0, "in no try had the lane written anything when its input failed"

    monkeypatch.undo()
    code, line = under_test.drive(spark, exploded)
    assert code == 0, line
    assert under_test.values() == expected
