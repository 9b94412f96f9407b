"""One run of the driver: stop requests, ends, time limits, the run record and the offset mirror."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from ckpt_stream.protocol.run_files import record_files, restart_history, stop_requests
from tests.support.kafka_io import group_offsets
from tests.support.streams import StreamUnderTest, copy, numbered
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


def mirrored(stream: StreamUnderTest) -> dict[int, int]:
    return group_offsets(stream.kafka, stream.name, stream.source)


@contextmanager
def running(stream: StreamUnderTest, spark: Any, **changes: Any) -> Iterator[list[tuple[int, str]]]:
    """Run the stream in a thread until the end of the block; the list gets exit code and last line."""
    outcome: list[tuple[int, str]] = []
    thread = threading.Thread(target=lambda: outcome.append(stream.drive(spark, copy, drain=False, **changes)))
    thread.start()
    try:
        wait_for(lambda: stream.runs() and stream.runs()[-1].state == "RUNNING", "the stream to run")
        yield outcome
    finally:
        request_stop(stream)
        thread.join(60)
        assert not thread.is_alive()


def request_stop(stream: StreamUnderTest) -> None:
    (stream.checkpoint / record_files.STOP).write_text(stop_requests.stop_request("a test", "because"))


def test_the_groups_offsets_are_right_after_every_batch(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2)
    with running(under_test, spark):
        for step in range(3):
            under_test.feed(*numbered(20, step * 20))
            wait_for(lambda: len(under_test.values()) == (step + 1) * 20, "the batch")  # noqa: B023
            end = wait_for(lambda: under_test.ledger()[-1].end[under_test.source], "the ledger")
            wait_for(lambda: mirrored(under_test) == {int(p): o for p, o in end.items()}, "the mirror")  # noqa: B023
    assert sum(mirrored(under_test).values()) == 60


@pytest.mark.parametrize(("mode", "seen"), [("disabled", {}), ("periodic", {0: 5}), ("on_checkpoint", {0: 5})])
def test_the_offset_mirror_has_three_modes(spark: Any, stream: Make, mode: str, seen: dict[int, int]) -> None:
    under_test = stream(offset_mirror=mode, offset_mirror_period=3600)
    under_test.feed(*numbered(5))
    under_test.drive(spark, copy)
    assert mirrored(under_test) == seen


def test_a_stop_request_ends_the_run_between_batches_and_nothing_is_lost(spark: Any, stream: Make) -> None:
    under_test = stream(max_offsets_per_batch=20)
    under_test.feed(*numbered(2000))
    with running(under_test, spark) as outcome:
        wait_for(lambda: len(under_test.committed()) >= 100, "some batches")
    code, line = outcome[0]
    assert (code, line.split()[-1]) == (0, "STOPPED")
    assert under_test.runs()[-1].state == "STOPPED"
    stopped_at = len(under_test.committed())
    assert stopped_at < 2000
    # The batch that was running was committed: the ledger holds no batch that the commit log lacks.
    assert under_test.ledger()[-1].batch == under_test.last_batch("commits")
    assert under_test.drive(spark, copy, max_offsets_per_batch=None)[0] == 0
    assert under_test.values() == numbered(2000)


def test_a_stream_that_has_read_its_input_notes_that_it_waits_for_more(spark: Any, stream: Make) -> None:
    under_test = stream(heartbeat=0.1)
    under_test.feed(*numbered(5))
    with running(under_test, spark):
        wait_for(lambda: len(under_test.committed()) == 5 and under_test.runs()[-1].batches, "the batch")
        done = under_test.runs()[-1].batches[-1]["ended"]
        wait_for(lambda: under_test.runs()[-1].idle > done, "the note")


def test_a_stop_request_of_an_earlier_run_does_not_stop_the_next_one(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    under_test.drive(spark, copy)
    request_stop(under_test)
    under_test.feed("b")
    code, line = under_test.drive(spark, copy)
    assert (code, line.split()[-1]) == (0, "FINISHED")
    assert under_test.values() == ["a", "b"]


def test_a_driver_writes_heartbeats_while_its_start_takes_long(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ckpt_stream.driver import driver

    under_test, original = stream(heartbeat=0.1), driver.reconcile_at_start
    heartbeats: list[Any] = []
    under_test.feed("a")

    def slow(*given: Any, **options: Any) -> Any:
        first = under_test.runs()[-1].heartbeat
        heartbeats.append(wait_for(lambda: under_test.runs()[-1].heartbeat > first, "a heartbeat during the start"))
        assert under_test.runs()[-1].state == "STARTING"
        return original(*given, **options)

    monkeypatch.setattr(driver, "reconcile_at_start", slow)
    assert under_test.drive(spark, copy)[0] == 0
    ended = under_test.runs()[-1]
    assert (len(heartbeats), ended.state, ended.watched > ended.history[0]["time"]) == (1, "FINISHED", True)


def test_a_stop_that_an_earlier_run_died_before_obeying_ends_its_restart_before_the_first_batch(
    spark: Any, stream: Make
) -> None:
    under_test = stream()
    under_test.feed("a")

    def broken(events: Any) -> Any:
        raise RuntimeError("no")

    assert under_test.drive(spark, copy)[0] == 0
    under_test.feed("b")
    assert under_test.drive(spark, broken, token="first")[0] == 1
    dead = under_test.runs()[-1]
    request = under_test.checkpoint / record_files.STOP
    request.write_text(stop_requests.stop_request("ann", "maintenance", dead.run, dead.token))
    for token in ("second", "third"):
        code, line = under_test.drive(spark, copy, token=token)
        assert (code, line.split()[-1]) == (0, "STOPPED")
        assert json.loads(request.read_text())["run"] == under_test.runs()[-1].run
        # As if this run had failed too.
        record = under_test.runs()[-1]
        record.state = "FAILED"
        (under_test.checkpoint / record.path).write_text(record.to_json())
    assert under_test.values() == ["a"]
    # A driver without a token was started by a user, who wants the stream to run.
    code, line = under_test.drive(spark, copy)
    assert (code, line.split()[-1], request.exists()) == (0, "FINISHED", False)
    assert under_test.values() == ["a", "b"]


def test_a_stop_that_a_run_has_obeyed_does_not_end_the_next_one(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    with running(under_test, spark, token="first") as outcome:
        wait_for(lambda: under_test.values() == ["a"], "the batch")
    assert outcome[0][1].split()[-1] == "STOPPED"
    under_test.feed("b")
    code, line = under_test.drive(spark, copy, token="second")
    assert (code, line.split()[-1]) == (0, "FINISHED")


def test_a_run_ends_at_the_offsets_at_which_it_was_told_to_stop(spark: Any, stream: Make) -> None:
    under_test = stream(max_offsets_per_batch=10)
    under_test.feed(*numbered(100))
    stop_at = {under_test.source: {"0": 25}}
    code, line = under_test.drive(spark, copy, drain=False, stop_at=stop_at)
    assert (code, line.split()[-1]) == (0, "FINISHED")
    assert under_test.values() == numbered(30)


def test_a_batch_that_takes_too_long_ends_the_run_and_is_run_again(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")

    def slow(events: Any) -> Any:
        def wait(rows: Any) -> Any:
            for batch in rows:
                time.sleep(20)
                yield batch

        return events.select("key", "value").mapInArrow(wait, "key binary, value binary")

    code, line = under_test.drive(spark, slow, batch_timeout=2)
    assert code == 1
    assert "BatchTimeout" in line
    assert "batch_timeout" in line
    assert under_test.runs()[-1].failure.restart_may_help  # type: ignore[union-attr]
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["a"]


def test_the_minimum_pause_between_batches_is_kept(spark: Any, stream: Make) -> None:
    from datetime import datetime

    under_test = stream(max_offsets_per_batch=5, min_pause=1.0)
    under_test.feed(*numbered(15))
    under_test.drive(spark, copy)
    batches = under_test.runs()[-1].batches
    gaps = [
        (datetime.fromisoformat(b["started"]) - datetime.fromisoformat(a["ended"])).total_seconds()
        for a, b in itertools.pairwise(batches)
    ]
    assert len(gaps) == 2
    assert all(gap >= 0.99 for gap in gaps)


def test_the_run_record_holds_states_totals_and_batches(spark: Any, stream: Make) -> None:
    under_test = stream(lanes=2, max_offsets_per_batch=50)
    under_test.feed(*numbered(120))
    under_test.drive(spark, copy)
    run = under_test.runs()[-1]
    assert [h["state"] for h in run.history] == ["STARTING", "RUNNING", "FINISHED"]
    assert run.reconciliation == "fresh start"
    assert run.spark["application_id"] == spark.sparkContext.applicationId
    assert run.driver["pid"]
    assert run.totals == {
        "batches": 3, "input_rows": 120, "records": 120, "skipped": 0, "malformed": 0, "dead_letters": 0
    }  # fmt: skip
    first = run.batches[0]
    assert first["batch"] == 0
    assert first["input_rows"] == 50
    assert run.batches[-1]["end"] == {under_test.source: {"0": 120}}
    assert {lane["lane"] for lane in first["lanes"]} == {0, 1}
    assert all(lane["commit_ms"] > 0 for lane in first["lanes"])
    under_test.feed("x")
    under_test.drive(spark, copy)
    assert under_test.runs()[-1].reconciliation == Reconciliation(Resume.CLEAN, 2).line


def test_the_restart_history_counts_failures_and_not_stops(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")

    def broken(events: Any) -> Any:
        return events.selectExpr("key", "cast(raise_error('broken') as string) as value")

    assert under_test.drive(spark, broken)[0] == 1
    assert under_test.drive(spark, broken)[0] == 1
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.drive(spark, copy)[0] == 0
    history = restart_history.read_newest(under_test.files)[1]
    assert [entry["after_state"] for entry in history] == ["FAILED", "FAILED"]
    assert all("broken" in entry["reason"] for entry in history)
    runs = [r.run for r in under_test.runs()]
    assert [entry["run"] for entry in history] == runs[1:3]
