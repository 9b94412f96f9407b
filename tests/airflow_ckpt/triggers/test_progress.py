"""The trigger: it fires once, tolerates failed looks, reports an error that stays, and never blocks the triggerer's loop."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest

from airflow_ckpt.exceptions import BadConnection, UnknownConnection
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import Goal, Outcome
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.triggers import progress
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from tests.airflow_ckpt.supervision.samples import a_status, a_stream
from tests.airflow_ckpt.triggers.fakes import Play, WatchedStream, a_trigger, events

pytestmark = pytest.mark.unit


# --- carried -----------------------------------------------------------------------------------------------------------


def test_a_trigger_is_the_same_after_its_way_through_the_database() -> None:
    goal = Goal(batches=3, offsets={"orders_in": {"0": 5}}, deadline="2026-11-17T12:00:00+00:00")
    trigger = a_trigger(goal, poll_interval=3.0, on_kill_action="stop", by="dag.task run", pause=True)
    path, kwargs = json.loads(json.dumps(trigger.serialize()))
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**kwargs)
    assert again.serialize() == trigger.serialize()


# --- watching ----------------------------------------------------------------------------------------------------------


def test_it_fires_once_when_the_goal_is_reached(play: Play, slept: list[float]) -> None:
    stream = play("STARTING", "STARTING", a_status("RUNNING", batch=7))
    [event] = events(a_trigger(poll_interval=5.0))
    assert (event["outcome"], event["then"], event["goal"]) == ("reached", "next_step", {"started": True})
    assert (event["status"]["state"], event["status"]["batch"]) == ("RUNNING", 7)
    assert slept[1:] == [5.0, 5.0]
    assert stream.connected == 1


def test_an_event_holds_everything_that_the_operator_needs_as_plain_json(play: Play, slept: list[float]) -> None:
    play(a_status("FAILED", reason="LedgerLost: batch 3", offsets={"orders_in": {"0": 5}}))
    [event] = events(a_trigger())
    assert "LedgerLost: batch 3" in json.loads(json.dumps(event))["reason"]
    assert event["outcome"] == "failed"


def test_a_deadline_fires_and_is_not_slept_over(play: Play, slept: list[float]) -> None:
    play("STARTING")
    deadline = datetime.now(UTC) + timedelta(milliseconds=50)
    [event] = events(a_trigger(Goal(started=True, deadline=deadline.isoformat()), poll_interval=60.0))
    assert event["outcome"] == "timeout"
    assert all(pause <= progress.MIN_DEFERRED_SECONDS + 1.0 for pause in slept)


def test_the_first_looks_of_many_triggers_are_spread(play: Play, slept: list[float]) -> None:
    for _ in range(20):
        play("RUNNING")
        events(a_trigger(poll_interval=10.0))
    assert len(set(slept)) == 20
    assert progress.MIN_DEFERRED_SECONDS <= min(slept) <= max(slept) <= progress.MIN_DEFERRED_SECONDS + 1.0


def test_a_pause_ends_at_its_moment_without_a_look_at_the_stream(play: Play, slept: list[float]) -> None:
    stream = play("RUNNING")
    moment = datetime.now(UTC) + timedelta(seconds=30)
    [event] = events(a_trigger(Goal(until=moment.isoformat()), pause=True))
    assert (event["outcome"], event["then"], event["status"]) == ("reached", "next_step", None)
    assert [round(pause) for pause in slept] == [30]
    assert stream.threads == []


def test_a_pause_that_a_restarted_triggerer_takes_up_is_not_begun_again(play: Play, slept: list[float]) -> None:
    play("RUNNING")
    moment = datetime.now(UTC) - timedelta(seconds=30)
    assert len(events(a_trigger(Goal(until=moment.isoformat()), pause=True))) == 1
    assert slept == [progress.MIN_DEFERRED_SECONDS]


@pytest.fixture
def job(play: Play) -> WatchedStream:
    """A job beside the stream that is over."""
    stream = play("RUNNING")
    stream.jobs = [Outcome("reached", "the job is ENDED: exit 0")]
    return stream


def a_job_trigger(goal: Goal | None = None) -> CheckpointProgressTrigger:
    handle = Handle("process", "1", "token").as_dict()
    return a_trigger(goal or Goal(), handle=handle, result="_ckpt/verdicts/token.result", poll_interval=5.0)


def test_a_job_that_is_over_at_once_fires_no_earlier_than_the_others(job: WatchedStream, slept: list[float]) -> None:
    """Airflow's scheduler fails a task that comes back before the executor has reported that it left."""
    [event] = events(a_job_trigger())
    assert (event["outcome"], event["handle"]["token"], event["status"]) == ("reached", "token", None)
    assert [pause >= progress.MIN_DEFERRED_SECONDS for pause in slept] == [True]


def test_a_job_is_watched_until_it_is_over_and_a_look_that_fails_is_tolerated(
    job: WatchedStream, slept: list[float]
) -> None:
    going = Outcome("waiting", "the job is RUNNING")
    job.jobs = [going, OSError("YARN is away"), going, Outcome("failed", "exit 1")]
    [event] = events(a_job_trigger())
    assert (event["outcome"], event["reason"], slept[1:]) == ("failed", "exit 1", [5.0] * 3)


# --- what fails --------------------------------------------------------------------------------------------------------


def test_a_look_that_fails_is_tolerated(play: Play, slept: list[float]) -> None:
    play(OSError("S3 is away"), TimeoutError("Kafka too"), "STARTING", OSError("again"), "RUNNING")
    [event] = events(a_trigger())
    assert event["outcome"] == "reached"


def test_a_look_that_keeps_failing_is_reported(play: Play, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TOLERATED_FAILURES", 3)
    stream = play(OSError("S3 is away"))
    [event] = events(a_trigger())
    assert (event["outcome"], event["reason"], event["status"]) == ("error", "OSError: S3 is away", None)
    assert len(stream.threads) == 3


def test_only_looks_that_fail_one_after_the_other_count(
    play: Play, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TOLERATED_FAILURES", 2)
    away = OSError("away")
    play(away, "STARTING", away, "STARTING", away, "RUNNING")
    [event] = events(a_trigger())
    assert event["outcome"] == "reached"


def test_a_connection_that_cannot_work_is_reported_at_once(play: Play, slept: list[float]) -> None:
    stream = play("RUNNING")
    stream.connects = [BadConnection("lacks bootstrap.servers")]
    [event] = events(a_trigger())
    assert (event["outcome"], stream.connected) == ("error", 1)
    assert "lacks bootstrap.servers" in event["reason"]


def test_a_connection_that_is_unknown_for_a_moment_is_asked_for_again(play: Play, slept: list[float]) -> None:
    """A triggerer also says `not found` when the API server does not answer."""
    stream = play("RUNNING")
    stream.connects = [UnknownConnection("kafka_default"), OSError("away")]
    [event] = events(a_trigger())
    assert (event["outcome"], stream.connected) == ("reached", 3)


def test_a_declaration_that_cannot_work_is_reported_at_once(play: Play, slept: list[float]) -> None:
    play("RUNNING")
    [event] = events(a_trigger(stream={**a_stream().as_dict(), "sink": "orders_in"}))
    assert event["outcome"] == "error"
    assert "orders_in" in event["reason"]


# --- the loop ----------------------------------------------------------------------------------------------------------


def test_a_look_that_blocks_does_not_block_the_loop(play: Play) -> None:
    entered, release = threading.Event(), threading.Event()
    stream = play("RUNNING")
    show = stream.status

    def blocked() -> StreamStatus:
        entered.set()
        assert release.wait(10)
        return show()

    stream.status = blocked  # type: ignore[method-assign]

    async def tick() -> int:
        ticks = 0
        task = asyncio.ensure_future(anext(a_trigger(poll_interval=0.01).run()))
        await asyncio.to_thread(entered.wait, 10)
        for _ in range(50):
            await asyncio.sleep(0)
            ticks += 1
        assert not task.done()
        release.set()
        await task
        return ticks

    assert asyncio.run(tick()) == 50
    assert stream.threads[0].startswith("airflow-ckpt-look")
