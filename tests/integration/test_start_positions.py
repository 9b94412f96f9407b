"""Where a new checkpoint begins, and that an old one always wins."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ckpt_stream.protocol.run_files import record_files
from tests.support.kafka_io import produce
from tests.support.streams import StreamUnderTest, copy

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


def commit_for_group(stream: StreamUnderTest, group: str, partition: int, offset: int) -> None:
    consumer = Consumer({**stream.kafka, "group.id": group})
    consumer.commit(offsets=[TopicPartition(stream.source, partition, offset)], asynchronous=False)
    consumer.close()


def fill(stream: StreamUnderTest, partition: int, values: list[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(stream.kafka))
    for value in values:
        producer.produce(stream.source, value, partition=partition)
    producer.flush()


def test_group_starts_at_the_groups_offsets_and_else_at_the_earliest(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2, group="g-" + str(time.time_ns()))
    fill(under_test, 0, ["a0", "a1", "a2"])
    fill(under_test, 1, ["b0", "b1"])
    commit_for_group(under_test, str(under_test.settings["group"]), 0, 2)
    under_test.drive(spark, copy)
    assert under_test.values() == ["a2", "b0", "b1"]


def test_explicit_offsets_are_kept_to(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2)
    fill(under_test, 0, ["a0", "a1"])
    fill(under_test, 1, ["b0", "b1"])
    offsets = {under_test.source: {"0": 1, "1": 2}}
    under_test.drive(spark, copy, start="explicit", start_offsets=offsets)
    assert under_test.values() == ["a1"]


def test_a_timestamp_starts_at_the_first_record_not_older(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("old")
    time.sleep(0.02)  # the broker's clock counts in milliseconds
    moment = int(time.time() * 1000)
    under_test.feed("new")
    under_test.drive(spark, copy, start="timestamp", start_timestamp_ms=moment)
    assert under_test.values() == ["new"]


def test_latest_takes_only_what_comes_after_the_first_start(spark: Any, stream: Make) -> None:
    under_test = stream(start="latest")
    under_test.feed("before")
    under_test.drive(spark, copy)
    under_test.feed("after")
    under_test.drive(spark, copy)
    assert under_test.values() == ["after"]


def test_the_checkpoint_wins_over_every_start_position(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("one")
    under_test.drive(spark, copy)
    commit_for_group(under_test, under_test.name, 0, 0)
    under_test.feed("two")
    for changes in ({"start": "group"}, {"start": "earliest"}, {"start": "latest"}):
        code, line = under_test.drive(spark, copy, **changes)
        assert code == 0, line
    assert under_test.values() == ["one", "two"]


def test_a_lost_checkpoint_of_a_stateless_stream_goes_on_from_the_ledger(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2, lanes=2)
    under_test.feed("a", "b", "c")
    under_test.drive(spark, copy)
    shutil.rmtree(under_test.checkpoint)
    under_test.feed("d", "e")
    code, line = under_test.drive(spark, copy, start="ledger")
    assert code == 0, line
    assert under_test.values() == ["a", "b", "c", "d", "e"]
    under_test.feed("f")
    # From now on it is a checkpoint like any other.
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["a", "b", "c", "d", "e", "f"]
    assert (under_test.checkpoint / record_files.ADOPTION).exists()


def test_a_stream_that_starts_over_in_the_same_folder_knows_nothing_of_a_former_takeover(
    spark: Any, stream: Make
) -> None:
    under_test = stream()
    under_test.files.write(record_files.ADOPTION, json.dumps({"format": 1, "query_id": "former", "batch": 7}))
    under_test.feed("a")
    assert under_test.drive(spark, copy)[0] == 0
    assert not under_test.files.exists(record_files.ADOPTION)


def test_a_stateful_stream_is_not_started_from_the_ledger(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    under_test.drive(spark, copy)
    shutil.rmtree(under_test.checkpoint)

    def counted(events: Any) -> Any:
        return events.groupBy("key").count().selectExpr("key", "cast(count as string) as value")

    code, line = under_test.drive(spark, counted, start="ledger", output_mode="update")
    assert code == 1
    assert "state" in line
    assert under_test.values() == ["a"]


def test_a_source_topic_that_is_missing_is_named(spark: Any, stream: Make) -> None:
    under_test = stream()
    produce(under_test.kafka, under_test.source, [("k", "v")])
    code, line = under_test.drive(spark, copy, source=["no-such-source"])
    assert code == 1
    assert "no-such-source" in line
