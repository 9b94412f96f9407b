"""A batch that was in doubt and comes out differently when it is done again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from typer.testing import CliRunner, Result

from airflow_ckpt.cli import app
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import UNKNOWN
from airflow_ckpt.verify.verification import verify
from ckpt_stream.driver.exactly_once import ExactlyOnceWriter
from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.run_files.record_files import REPLAYS, list_from_json
from tests.support.kafka_io import produce
from tests.support.streams import StreamUnderTest, copy

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


def changed(events: DataFrame) -> DataFrame:
    return events.selectExpr("key", "cast(concat(cast(value as string), '!') as binary) as value")


def replays(stream: StreamUnderTest) -> list[dict[str, Any]]:
    return list_from_json(stream.files.read(REPLAYS), "list of replays")


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_batch_that_is_wholly_in_the_sink_may_replay_differently_and_the_run_record_says_so(
    spark: Any, stream: Make, lanes: int
) -> None:
    under_test = stream(lanes=lanes)
    under_test.feed("a", "b", "c", "d", "e", keys=5)
    crashed = under_test.crash_at(crash_points.AFTER_LAST_LANE)
    assert crashed.hit is not None, crashed.log[-2000:]
    code, line = under_test.drive(spark, changed)
    assert code == 0, line
    assert under_test.values() == list("abcde")
    differing = [r.lane for r in under_test.ledger() if r.records]
    assert [b["differs"] for b in under_test.runs()[-1].batches] == [differing]
    (noted,) = replays(under_test)
    assert (noted["batch"], noted["lanes"], noted["accepted"]) == (0, differing, False)

    under_test.feed("f")
    assert under_test.drive(spark, changed)[0] == 0
    assert under_test.values() == [*"abcde", "f!"]
    assert len(replays(under_test)) == 1


def in_doubt_again(stream: StreamUnderTest, batch: int) -> None:
    """As if the driver had died after the batch's last lane."""
    commits = stream.checkpoint / "commits"
    (commits / f".{batch}.crc").unlink()
    (commits / str(batch)).unlink()


def accept(stream: StreamUnderTest, *words: str) -> Result:
    argv = ["ledger", "accept-replay", stream.name, "--checkpoint", str(stream.checkpoint)]
    return CliRunner().invoke(app, [*argv, "--bootstrap", stream.kafka["bootstrap.servers"], *words])


def verdict_on(stream: StreamUnderTest) -> tuple[str, set[str]]:
    config = stream.config()
    found = verify(Subject(config.name, stream.kafka, config.sink_id, config.sink, config.group, stream.files))
    return found.verdict, {finding.kind for finding in found.findings}


def test_a_whole_batch_that_was_written_without_the_proof_of_input_may_not_replay_differently(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a batch may lack rows that a failed input never delivered; only the replay shows it."""
    under_test = stream()
    monkeypatch.setattr("ckpt_stream.driver.sink.LaneSpec", partial(LaneSpec, ledger_format=1))
    under_test.feed("a", "b", "c")
    assert under_test.drive(spark, lambda events: copy(events).where("value != cast('c' as binary)"))[0] == 0
    monkeypatch.undo()
    in_doubt_again(under_test, 0)
    code, line = under_test.drive(spark, copy)
    assert (code, "ReplayDiffers" in line) == (1, True), line

    assert accept(under_test, "--yes").exit_code == 0
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["a", "b"]
    assert verdict_on(under_test) == (UNKNOWN, {"replay_accepted"})


def test_a_whole_batch_of_a_transform_with_state_may_not_replay_differently(spark: Any, stream: Make) -> None:
    """Its state would be that of the replay, and not of what is in the sink."""
    under_test = stream()
    produce(under_test.kafka, under_test.source, [("k", "a"), ("k", "b")])
    assert under_test.drive(spark, lambda events: copy(events).dropDuplicates(["value"]))[0] == 0
    in_doubt_again(under_test, 0)
    code, line = under_test.drive(spark, lambda events: changed(events).dropDuplicates(["value"]))
    assert (code, "ReplayDiffers" in line) == (1, True), line
    assert under_test.drive(spark, lambda events: copy(events).dropDuplicates(["value"]))[0] == 0
    assert under_test.values() == ["a", "b"]


def keys_of_lanes(spark: Any, lanes: int) -> list[str]:
    """A key for each lane."""
    rows = spark.range(100).select(F.col("id").cast("string").cast("binary").alias("key"))
    placed = rows.repartition(lanes, "key").withColumn("lane", F.spark_partition_id()).collect()
    found = {row["lane"]: bytes(row["key"]).decode() for row in placed}
    return [found[lane] for lane in range(lanes)]


def partly_written(spark: Any, stream: Make) -> tuple[StreamUnderTest, list[str], Sequence[str]]:
    """A batch of which lane 0, with many rows, is in the sink; lanes 1 and 2, with a few, are missing."""
    under_test = stream(lanes=3)
    keys = keys_of_lanes(spark, 3)
    many, few = [f"many-{i:05d}" for i in range(30_000)], ["one", "two"]
    produce(under_test.kafka, under_test.source, [(keys[0], v) for v in many] + list(zip(keys[1:], few, strict=True)))
    crashed = under_test.crash_at(crash_points.AFTER_COMMIT, lane=0, master="local[1]")
    assert crashed.hit is not None, crashed.log[-2000:]
    assert [(r.lane, r.records) for r in under_test.ledger()] == [(0, 30_000)]
    return under_test, many, few


@pytest.mark.faults
def test_no_missing_lane_is_written_from_a_replay_that_differs_unless_a_user_accepts_it(
    spark: Any, stream: Make
) -> None:
    under_test, many, few = partly_written(spark, stream)
    code, line = under_test.drive(spark, changed)
    assert (code, "ReplayDiffers: Lane 0 of batch 0" in line) == (1, True), line
    assert "airflow-ckpt ledger accept-replay" in line
    assert [r.lane for r in under_test.ledger()] == [0], "a small lane was committed before the large one was compared"

    assert accept(under_test).exit_code == 1
    assert not under_test.files.exists("_ckpt/accepted.json")
    done = accept(under_test, "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == {"batch": 0, "lanes_there": [0], "lanes_missing": [1, 2]}

    code, line = under_test.drive(spark, changed)
    assert code == 0, line
    assert under_test.values() == sorted([*many, *(f"{value}!" for value in few)])
    (noted,) = replays(under_test)
    assert (noted["batch"], noted["lanes"], noted["accepted"]) == (0, [0], True)


@pytest.mark.faults
def test_rows_that_are_lost_after_they_were_compared_are_not_computed_again(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test, many, few = partly_written(spark, stream)
    run = ExactlyOnceWriter.__call__

    def lose_what_was_compared(self: ExactlyOnceWriter, rows: DataFrame, spec: LaneSpec) -> Any:
        done = run(self, rows, spec)
        if spec.only_compare:
            for kept in spark.sparkContext._jsc.getPersistentRDDs().values():
                kept.unpersist(True)
        return done

    monkeypatch.setattr(ExactlyOnceWriter, "__call__", lose_what_was_compared)
    code, line = under_test.drive(spark, copy)
    assert code == 1, "the missing lanes were written from rows that nothing was compared with"
    assert [r.lane for r in under_test.ledger()] == [0]
    monkeypatch.undo()
    code, line = under_test.drive(spark, copy)
    assert code == 0, line
    assert under_test.values() == sorted([*many, *few])


@pytest.mark.faults
def test_what_a_user_has_accepted_is_known_to_the_verdict_whatever_happens_to_the_run(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test, _, _ = partly_written(spark, stream)
    assert accept(under_test, "--yes").exit_code == 0

    def dies(*_: Any, **__: Any) -> None:
        raise RuntimeError("the driver dies here")

    monkeypatch.setattr("ckpt_stream.driver.sink.note_replay", dies)
    code, line = under_test.drive(spark, changed)
    assert (code, "dies here" in line) == (1, True), line
    assert [r.lane for r in under_test.ledger()] == [0, 1, 2], "the fault came before the missing lanes were written"
    monkeypatch.undo()
    assert under_test.drive(spark, changed)[0] == 0
    assert verdict_on(under_test) == (UNKNOWN, {"replay_accepted"})


@pytest.mark.faults
def test_a_batch_that_replays_identically_is_finished_and_nothing_is_noted(spark: Any, stream: Make) -> None:
    under_test, many, few = partly_written(spark, stream)
    code, line = under_test.drive(spark, copy)
    assert code == 0, line
    assert under_test.values() == sorted([*many, *few])
    assert replays(under_test) == []
    assert len({r.attempt for r in under_test.ledger()}) == 1, "the lanes fit each other, and say so"


def test_only_a_batch_in_doubt_has_a_replay_to_accept(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    under_test.drive(spark, copy)
    assert accept(under_test, "--yes").exit_code == 1
    assert not under_test.files.exists("_ckpt/accepted.json")


def test_a_stream_changes_over_to_format_2_of_the_ledger_behind_the_batch_in_doubt(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = stream(lanes=2, max_offsets_per_batch=10)
    monkeypatch.setattr("ckpt_stream.driver.sink.LaneSpec", partial(LaneSpec, ledger_format=1))
    produce(under_test.kafka, under_test.source, [(f"key-{i}", None if i % 2 else f"v{i:02d}") for i in range(20)])
    assert under_test.drive(spark, copy)[0] == 0
    monkeypatch.undo()
    in_doubt_again(under_test, 1)
    produce(under_test.kafka, under_test.source, [("key", f"w{i}") for i in range(10)])
    code, line = under_test.drive(spark, copy)
    assert code == 0, line
    assert sorted((r.batch, r.format) for r in under_test.ledger()) == [(0, 1)] * 2 + [(1, 1)] * 2 + [(2, 2)] * 2
    assert [(b["batch"], b["skipped"], b["differs"]) for b in under_test.runs()[-1].batches] == [(1, 2, []), (2, 0, [])]
    assert len(under_test.committed()) == 30
    texts = {r.lane: r.offsets for r in under_test.ledger() if r.batch == 2}
    assert texts == {0: (under_test.checkpoint / "offsets" / "2").read_text(), 1: None}
