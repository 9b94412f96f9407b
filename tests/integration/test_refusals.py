"""Each named refusal, provoked for real: nothing is written, and the message holds what helps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.spark.unsafe_settings import IGNORE_LEDGER
from tests.support.kafka_io import read_all, recreate_topic
from tests.support.streams import StreamUnderTest, copy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


def everything(stream: StreamUnderTest) -> list[Any]:
    """All that is in the sink, uncommitted records included."""
    return read_all(stream.kafka, stream.sink, isolation="read_uncommitted")


@contextmanager
def nothing_is_written(*streams: StreamUnderTest) -> Iterator[None]:
    before = [everything(s) for s in streams]
    yield
    assert [everything(s) for s in streams] == before


def refused(stream: StreamUnderTest, outcome: tuple[int, str], error: str, *words: str) -> None:
    stream.failed_for_good(outcome, error, "What helps: ", *words)


def after_a_batch(spark: Any, stream: Make) -> StreamUnderTest:
    under_test = stream()
    under_test.feed("a")
    under_test.drive(spark, copy)
    return under_test


def test_a_deleted_checkpoint_is_refused(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a", "b")
    under_test.drive(spark, copy)
    shutil.rmtree(under_test.checkpoint)
    with nothing_is_written(under_test):
        outcome = under_test.drive(spark, copy)
    refused(under_test, outcome, "ForeignLedger", "written twice", 'start="ledger"', "airflow-ckpt ledger reset")


def test_a_checkpoint_rolled_back_to_a_copy_is_refused(spark: Any, stream: Make) -> None:
    under_test = after_a_batch(spark, stream)
    shutil.copytree(under_test.checkpoint, under_test.folder / "copy")
    under_test.feed("b")
    under_test.drive(spark, copy)
    shutil.rmtree(under_test.checkpoint)
    shutil.copytree(under_test.folder / "copy", under_test.checkpoint)
    with nothing_is_written(under_test):
        outcome = under_test.drive(spark, copy)
    refused(under_test, outcome, "LedgerAhead", "rolled back or cloned", "twice", 'start="ledger"')


def test_a_second_query_on_the_ledger_is_refused(spark: Any, stream: Make) -> None:
    under_test = after_a_batch(spark, stream)
    second = {"checkpoint": str(under_test.folder / "second"), "name": "second", "sink_id": under_test.name}
    with nothing_is_written(under_test):
        code, line = under_test.drive(spark, copy, **second)
    assert code == 1
    assert "ForeignLedger" in line
    assert "another sink_id" in line


def test_a_deleted_ledger_topic_is_refused(spark: Any, stream: Make, admin: AdminClient) -> None:
    under_test = after_a_batch(spark, stream)
    topic = ledger_topic(under_test.name)
    admin.delete_topics([topic])[topic].result(30)
    under_test.feed("b")
    with nothing_is_written(under_test):
        outcome = under_test.drive(spark, copy)
    refused(under_test, outcome, "LedgerLost", topic, "written twice", "airflow-ckpt ledger rebuild")


def test_a_sink_topic_made_again_is_refused(spark: Any, stream: Make) -> None:
    under_test = after_a_batch(spark, stream)
    recreate_topic(under_test.kafka, under_test.sink)
    under_test.feed("b")
    with nothing_is_written(under_test):
        outcome = under_test.drive(spark, copy)
    refused(under_test, outcome, "SinkRecreated", under_test.sink, "airflow-ckpt ledger rebuild")


def test_lanes_changed_with_a_batch_in_doubt_are_refused(spark: Any, stream: Make) -> None:
    under_test = stream(lanes=3)
    under_test.feed(*map(str, range(100)), keys=20)
    crashed = under_test.crash_at(crash_points.AFTER_COMMIT, lane=1, master="local[1]")
    assert crashed.hit is not None, crashed.log[-2000:]
    with nothing_is_written(under_test):
        outcome = under_test.drive(spark, copy, lanes=2)
    refused(under_test, outcome, "LanesChanged", "in doubt", "lanes=3")
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == sorted(map(str, range(100)))


def test_a_second_driver_on_a_live_checkpoint_is_refused(spark: Any, stream: Make) -> None:
    under_test = stream(drain=False, heartbeat=0.5)
    running = under_test.start()
    try:
        wait_for(lambda: [r for r in under_test.runs() if r.state == "RUNNING"], "the first driver to run", seconds=90)
        with nothing_is_written(under_test):
            outcome = under_test.drive(spark, copy)
        refused(under_test, outcome, "DriverAlive", str(under_test.runs()[0].driver["pid"]), "airflow-ckpt stop")
        # The first one is not disturbed.
        under_test.feed("a")
        wait_for(lambda: under_test.values() == ["a"], "the first driver to go on")
    finally:
        running.kill()


def test_a_damaged_checkpoint_is_refused_by_name(spark: Any, stream: Make) -> None:
    under_test = stream(max_offsets_per_batch=1)
    under_test.feed("a", "b", "c")
    under_test.drive(spark, copy)
    for number in (1, 2):
        (under_test.checkpoint / "commits" / str(number)).unlink()
    with nothing_is_written(under_test):
        code, line = under_test.drive(spark, copy)
    assert code == 1
    assert "CheckpointLogError" in line


def test_an_environment_that_asks_to_ignore_the_ledger_is_refused(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = stream()
    under_test.feed("a")
    monkeypatch.setenv(IGNORE_LEDGER, "1")
    with nothing_is_written(under_test):
        outcome = under_test.drive(spark, copy)
    refused(under_test, outcome, "UnsafeSetting", IGNORE_LEDGER, "unset")
