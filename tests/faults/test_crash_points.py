"""Every crash point of the protocol, hit for real: the driver and the Python worker die, the next run goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN, VIOLATED
from airflow_ckpt.verify.verification import verify
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from tests.support.streams import Crashed, StreamUnderTest
from tests.support.waiting import wait_for

pytestmark = pytest.mark.faults

RECORDS = 600
BATCHES = 2
#: At these points the batch's records are in Kafka, but in a transaction that will never be committed.
ABORTED = (crash_points.MID_PRODUCE, crash_points.AFTER_FLUSH)
#: At these, at least one lane of the batch is in the sink, and the replay must skip it.
SKIPPED = (
    crash_points.COMMIT_SENT,
    crash_points.AFTER_COMMIT,
    crash_points.BETWEEN_LANES,
    crash_points.AFTER_LAST_LANE,
)


def feed(stream: StreamUnderTest, first: int) -> list[str]:
    values = [f"value-{i:05d}" for i in range(first, first + RECORDS)]
    stream.feed(*values, keys=37)
    return values


EVERYWHERE = pytest.mark.slow
#: An application whose driver does not ask the ledger.
IGNORES_THE_LEDGER = str(Path(__file__).with_name("ignores_the_ledger"))
QUICK = (crash_points.COMMIT_SENT, crash_points.BETWEEN_LANES)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("lanes", "points"),
    [
        pytest.param(
            1,
            tuple(p for p in crash_points.POINTS if p != crash_points.BETWEEN_LANES),
            marks=EVERYWHERE,
            id="1 lane, every point",
        ),
        pytest.param(3, crash_points.POINTS, marks=EVERYWHERE, id="3 lanes, every point"),
        pytest.param(3, QUICK, id="3 lanes, the points around the commit"),
    ],
)
def test_a_crash_anywhere_leaves_every_record_once(
    stream: Callable[..., StreamUnderTest], lanes: int, points: tuple[str, ...]
) -> None:
    """One stream dies at each point in turn; each run resumes after the former one's crash."""
    under_test = stream("copy_topic", partitions=2, lanes=lanes, max_offsets_per_batch=RECORDS // BATCHES)
    expected: list[str] = []
    for point in points:
        expected += feed(under_test, len(expected))
        hidden_before = under_test.hidden()
        # One core, one lane after the other: the crash in lane 1 finds lane 0 done and lane 2 not begun.
        lane = 1 if lanes > 1 and point not in crash_points.DRIVER_POINTS else None
        # The batch after the one that the former crash left in doubt.
        batch = (under_test.last_batch("offsets") or 0) + 1
        crashed = under_test.crash_at(point, batch=batch, lane=lane, master="local[1]")
        assert crashed.hit is not None, f"{point} was not reached:\n{crashed.log[-3000:]}"
        assert crashed.code != 0
        assert any(crash_points.ENVIRONMENT in line and point in line for line in crashed.log.splitlines())
        crash_left_its_mark(under_test, point, crashed, lanes, hidden_before)
        # What the crash left half done is work in flight, and no finding of the verification.
        assert verdict_on(under_test) != VIOLATED, point
    ended = under_test.run(master="local[2]")
    assert ended.code == 0, ended.log[-3000:]
    assert under_test.values() == expected
    replays = [b for r in under_test.runs() for b in r.batches]
    assert {b["batch"] for b in replays if b["skipped"]}, "no replayed lane was skipped: the faults hit nothing"
    assert verdict_on(under_test) == CLEAN


def verdict_on(stream: StreamUnderTest) -> str:
    config = stream.config()
    subject = Subject(config.name, stream.kafka, config.sink_id, config.sink, config.group, stream.files)
    return verify(subject).verdict


def crash_left_its_mark(stream: StreamUnderTest, point: str, crashed: Crashed, lanes: int, hidden_before: int) -> None:
    """The fault must have hit inside the window that its name promises."""
    assert crashed.hit is not None
    batch = crashed.hit["batch"]
    begun, committed = stream.last_batch("offsets"), stream.last_batch("commits")
    if point == crash_points.AFTER_COMMIT_LOG:
        # The watch sees the commit log a moment after Spark has written it; Spark may have begun the next batch by then.
        assert begun is not None
        assert committed is not None
        assert batch <= committed <= begun <= batch + 1
    else:
        assert (begun, committed) == (batch, batch - 1 if batch else None)
    in_ledger = {r.lane for r in stream.ledger() if r.batch == batch}
    if point in ABORTED:
        assert stream.hidden() > hidden_before, "no record of an aborted transaction is in the sink"
    expected: dict[str, set[int]] = {
        crash_points.COMMIT_SENT: {0, 1} if lanes > 1 else {0},
        crash_points.AFTER_COMMIT: {0, 1} if lanes > 1 else {0},
        crash_points.BETWEEN_LANES: {0},
        crash_points.AFTER_LAST_LANE: set(range(lanes)),
        crash_points.AFTER_COMMIT_LOG: set(range(lanes)),
        crash_points.OFFSETS_LOGGED: set(),
    }
    assert in_ledger == expected.get(point, {0} if lanes > 1 else set())


@pytest.mark.slow
def test_a_worker_that_outlives_its_driver_may_still_commit_and_the_batch_is_not_written_again(
    stream: Callable[..., StreamUnderTest],
) -> None:
    under_test = stream("copy_topic", partitions=2)
    expected = feed(under_test, 0)
    crashed = under_test.crash_at(crash_points.AFTER_FLUSH, kill="driver")
    assert crashed.hit is not None, crashed.log[-3000:]
    wait_for(lambda: [r for r in under_test.ledger() if r.batch == 0], "the orphaned worker to commit")
    assert under_test.last_batch("commits") is None
    ended = under_test.run()
    assert ended.code == 0, ended.log[-3000:]
    assert under_test.values() == expected
    assert under_test.runs()[-1].reconciliation == Reconciliation(Resume.IN_DOUBT_BEGUN, 0).line


@pytest.mark.slow
def test_a_zombie_that_wakes_after_the_resume_is_fenced(stream: Callable[..., StreamUnderTest]) -> None:
    under_test = stream("copy_topic", partitions=2)
    expected = feed(under_test, 0)
    crashed = under_test.crash_at(crash_points.AFTER_FLUSH, kill="zombie")
    assert crashed.hit is not None, crashed.log[-3000:]
    zombie = psutil.Process(crashed.hit["pid"])
    assert under_test.hidden() == RECORDS, "the zombie's open transaction must hold the batch"
    ended = under_test.run()
    assert ended.code == 0, ended.log[-3000:]
    assert under_test.values() == expected
    assert zombie.is_running()
    (under_test.folder / f"hit-{crash_points.AFTER_FLUSH}-0.wake").touch()
    zombie.wait(60)
    assert under_test.values() == expected
    assert under_test.hidden() == RECORDS


def duplicates(values: list[str]) -> int:
    return len(values) - len(set(values))


@pytest.mark.parametrize(
    ("name", "application", "options"),
    [
        ("Spark's own sink", "copy_topic", {"guarantee": "at_least_once"}),
        pytest.param("the ledger's decision switched off", IGNORES_THE_LEDGER, {}, marks=pytest.mark.slow),
    ],
)
def test_the_same_crash_without_the_protocol_shows_duplicates(
    stream: Callable[..., StreamUnderTest], name: str, application: str, options: dict[str, Any]
) -> None:
    under_test = stream(application, partitions=2)
    expected = feed(under_test, 0)
    crashed = under_test.crash_at(crash_points.AFTER_LAST_LANE, **options)
    assert crashed.hit is not None, crashed.log[-3000:]
    assert under_test.run(**options).code == 0
    seen = under_test.values()
    assert set(seen) == set(expected)
    assert duplicates(seen) == RECORDS, f"{name} should have written the batch twice"
