"""The trigger: fires once, survives what passes, reports what does not, and never blocks the triggerer's loop."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_ckpt.hooks.connections import BadConnection, UnknownConnection
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.runners.base import Handle
from airflow_ckpt.streams.goal import Goal, Outcome
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.triggers import progress
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from tests.airflow_ckpt.operators.fakes import FakeControl
from tests.airflow_ckpt.streams.samples import a_status, a_stream

pytestmark = pytest.mark.unit

real_sleep = asyncio.sleep


class Stream(FakeControl):
    """Shows statuses, raises exceptions, and knows in which thread it was asked."""

    def __init__(self, *script: StreamStatus | Exception | str) -> None:
        super().__init__(*[s for s in script if not isinstance(s, Exception)])
        self.script = [a_status(s) if isinstance(s, str) else s for s in script]
        self.connects: list[Exception | None] = []
        self.connected = 0
        self.threads: list[str] = []
        self.jobs: list[Outcome | Exception] = []

    def look_at_job(self, handle: Handle, result: str, goal: Goal) -> Outcome:
        assert (handle.token, result) == ("token", "_ckpt/verdicts/token.result")
        found = self.jobs.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def status(self) -> StreamStatus:
        self.threads.append(threading.current_thread().name)
        found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(found, Exception):
            raise found
        return found


Play = Callable[..., Stream]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def play(*script: StreamStatus | Exception | str) -> Stream:
        stream = Stream(*script)

        async def connect(hook: StreamHook) -> Stream:
            stream.connected += 1
            error = stream.connects.pop(0) if stream.connects else None
            if error is not None:
                raise error
            stream.by = hook.by
            return stream

        monkeypatch.setattr(StreamHook, "aget_conn", connect)
        return stream

    return play


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody sleeps; the pauses are written down."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses


def a_trigger(goal: Goal | None = None, **values: Any) -> CheckpointProgressTrigger:
    given = {
        "stream": a_stream().as_dict(),
        "goal": (goal or Goal(started=True)).as_dict(),
        "then": "next_step",
        **values,
    }
    return CheckpointProgressTrigger(**given)


def events(trigger: CheckpointProgressTrigger) -> list[dict[str, Any]]:
    """All events that it sends until it ends by itself."""

    async def collect() -> list[dict[str, Any]]:
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


def run(call: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await call

    return asyncio.run(wait())


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
    assert json.loads(json.dumps(event))["reason"] == "orders is FAILED: LedgerLost: batch 3"
    assert event["outcome"] == "failed"


def test_a_deadline_fires_and_is_not_slept_over(play: Play, slept: list[float]) -> None:
    play("STARTING")
    deadline = datetime.now(UTC) + timedelta(milliseconds=50)
    [event] = events(a_trigger(Goal(started=True, deadline=deadline.isoformat()), poll_interval=60.0))
    assert event["outcome"] == "timeout"
    assert all(pause <= progress.SETTLE_SECONDS + 1.0 for pause in slept)


def test_the_first_looks_of_many_triggers_are_spread(play: Play, slept: list[float]) -> None:
    for _ in range(20):
        play("RUNNING")
        events(a_trigger(poll_interval=10.0))
    assert len(set(slept)) == 20
    assert progress.SETTLE_SECONDS <= min(slept) <= max(slept) <= progress.SETTLE_SECONDS + 1.0


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
    assert slept == [progress.SETTLE_SECONDS]


@pytest.fixture
def job(play: Play) -> Stream:
    """A job beside the stream that is over."""
    stream = play("RUNNING")
    stream.jobs = [Outcome("reached", "the job is ENDED: exit 0")]
    return stream


def a_job_trigger(goal: Goal | None = None) -> CheckpointProgressTrigger:
    handle = Handle("process", "1", "token").as_dict()
    return a_trigger(goal or Goal(), handle=handle, result="_ckpt/verdicts/token.result", poll_interval=5.0)


def test_a_job_that_is_over_at_once_fires_no_earlier_than_the_others(job: Stream, slept: list[float]) -> None:
    """Airflow's scheduler fails a task that comes back before the executor has reported that it left."""
    [event] = events(a_job_trigger())
    assert (event["outcome"], event["handle"]["token"], event["status"]) == ("reached", "token", None)
    assert [pause >= progress.SETTLE_SECONDS for pause in slept] == [True]


def test_a_job_is_watched_until_it_is_over_and_a_look_that_fails_is_tolerated(job: Stream, slept: list[float]) -> None:
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
    """A triggerer says `not found` too when whoever knows the connection does not answer."""
    stream = play("RUNNING")
    stream.connects = [UnknownConnection("kafka_default"), OSError("away")]
    [event] = events(a_trigger())
    assert (event["outcome"], stream.connected) == ("reached", 3)


def test_a_declaration_that_cannot_work_is_reported_at_once(play: Play, slept: list[float]) -> None:
    play("RUNNING")
    [event] = events(a_trigger(stream={**a_stream().as_dict(), "sink": "orders_in"}))
    assert event["outcome"] == "error"
    assert "read what it writes" in event["reason"]


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


# --- on_kill -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def task_state(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The state of the task instance in Airflow's database, in a list that a test may change."""
    state = ["deferred"]

    def states(*, dag_id: str, task_ids: list[str], run_ids: list[str], map_index: int) -> Any:
        assert (dag_id, task_ids, run_ids, map_index) == ("dag", ["task"], ["run"], -1)
        return {"run": {"task": state[0]}}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", states)
    return state


def killed(action: str, *, known: bool = True) -> CheckpointProgressTrigger:
    trigger = a_trigger(on_kill_action=action)
    if known:
        trigger._task_instance = SimpleNamespace(dag_id="dag", task_id="task", run_id="run", map_index=-1)
    return trigger


@pytest.mark.parametrize(
    ("action", "did"), [("stop", [("stop", "the Airflow task was ended")]), ("kill", [("kill", 0)])]
)
@pytest.mark.parametrize("state", ["failed", "success", "removed", "running"])
def test_a_deferred_task_that_a_user_ended_does_to_the_stream_what_it_was_told(
    play: Play, task_state: list[str], action: str, did: Any, state: str
) -> None:
    stream = play("RUNNING")
    task_state[0] = state
    run(killed(action).on_kill())
    assert stream.did == did


@pytest.mark.parametrize("action", ["stop", "kill"])
def test_a_triggerer_that_lost_its_triggers_to_another_leaves_the_stream_alone(
    play: Play, task_state: list[str], action: str
) -> None:
    stream = play("RUNNING")
    run(killed(action).on_kill())
    assert (stream.did, stream.connected) == ([], 0)


def test_a_stream_that_is_to_be_left_is_left_without_a_question(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = play("RUNNING")
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: pytest.fail("asked"))
    run(killed("leave").on_kill())
    assert (stream.did, stream.connected) == ([], 0)


@pytest.mark.parametrize("state", ["failed", "deferred"])
def test_a_job_beside_the_stream_ends_with_the_task_that_waits_for_it(
    play: Play, task_state: list[str], state: str
) -> None:
    stream = play("RUNNING")
    task_state[0] = state
    trigger = killed("leave")
    trigger.handle = Handle("process", "id", "token", {}).as_dict()
    run(trigger.on_kill())
    assert stream.did == ([("end_job", "token")] if state == "failed" else [])


def test_a_trigger_that_knows_no_task_obeys(play: Play) -> None:
    stream = play("RUNNING")
    run(killed("stop", known=False).on_kill())
    assert stream.did == [("stop", "the Airflow task was ended")]
