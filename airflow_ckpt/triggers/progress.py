"""The trigger of every deferred task of this provider: it checks a stream until a goal is reached or out of reach."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.metrics import report
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import NOT_YET, REACHED, Goal, Outcome, waiting_line
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.control import StreamControl

T = TypeVar("T")

#: After so many failed checks in a row the trigger reports the error: five minutes at the default interval.
TOLERATED_FAILURES = 30
#: A check mostly waits for files and Kafka, so many streams can share these threads.
THREADS = 16
#: No trigger fires earlier. If a task is queued again before the executor has reported the end of its first part, the
#: scheduler takes it for a dead task and fails it. No event is lost: the operator has checked the stream before it deferred.
MIN_DEFERRED_SECONDS = 3.0
ERROR = "error"

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="airflow-ckpt-look")


async def off_the_loop(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run a blocking call in a thread pool of this provider, because other triggers use the loop's default pool."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(call, *args, **kwargs))


class CheckpointProgressTrigger(BaseTrigger):
    """Checks a stream at intervals and fires once: goal reached, stream failed, timed out, or status unknown.

    Its arguments name connections and hold no secrets. A failed check is repeated; after many failures in a row the trigger
    reports the error.
    """

    def __init__(
        self,
        stream: Mapping[str, Any],
        goal: Mapping[str, Any],
        then: str = "",
        poll_interval: float = 10.0,
        on_kill_action: str = "leave",
        by: str = "airflow",
        pause: bool = False,
        handle: Mapping[str, Any] | None = None,
        result: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stream, self.goal, self.then = dict(stream), dict(goal), then
        self.poll_interval, self.on_kill_action, self.by, self.pause = poll_interval, on_kill_action, by, pause
        self.handle, self.result = dict(handle) if handle else None, result

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "stream": self.stream,
                "goal": self.goal,
                "then": self.then,
                "poll_interval": self.poll_interval,
                "on_kill_action": self.on_kill_action,
                "by": self.by,
                "pause": self.pause,
                "handle": self.handle,
                "result": self.result,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        goal = Goal.from_dict(self.goal)
        if self.pause:
            await self._pause(goal)
            yield self._event(REACHED, "the pause is over", None)
            return
        # A triggerer starts all its triggers at once: spread their checks over time.
        await asyncio.sleep(MIN_DEFERRED_SECONDS + random.uniform(0, min(self.poll_interval, 1.0)))  # noqa: S311
        failures = 0
        while True:
            try:
                outcome, status = await self._look(goal)
            except Exception as e:
                failures += 1
                self.log.warning("check %s failed: %s: %s", failures, type(e).__name__, e)
                if failures >= TOLERATED_FAILURES or _is_final(e):
                    yield self._event(ERROR, f"{type(e).__name__}: {e}", None)
                    return
            else:
                failures = 0
                if outcome.outcome != NOT_YET:
                    yield self._event(outcome.outcome, outcome.reason, status)
                    return
                self.log.info(
                    "%s", outcome.reason if status is None else waiting_line(outcome, goal, datetime.now(UTC))
                )
                if status is not None:
                    report(status)
            await asyncio.sleep(self._seconds_to_next_look(goal))

    _control: StreamControl | None = None

    async def _look(self, goal: Goal) -> tuple[Outcome, StreamStatus | None]:
        """Check the stream, or the job that was started beside it."""
        if self._control is None:
            self._control = await StreamHook(Stream.from_dict(self.stream), self.by).aget_conn()
        if self.handle is not None:
            handle = Handle.from_dict(self.handle)
            return await off_the_loop(self._control.look_at_job, handle, self.result or "", goal), None
        status = await off_the_loop(self._control.status)
        return goal.judge(status, datetime.now(UTC)), status

    def _seconds_to_next_look(self, goal: Goal) -> float:
        moments = [datetime.fromisoformat(m) for m in (goal.until, goal.deadline) if m]
        left = [(m - datetime.now(UTC)).total_seconds() for m in moments]
        return max(0.1, min([self.poll_interval, *left]))

    async def _pause(self, goal: Goal) -> None:
        until = datetime.fromisoformat(goal.until or datetime.now(UTC).isoformat())
        await asyncio.sleep(max(MIN_DEFERRED_SECONDS, (until - datetime.now(UTC)).total_seconds()))

    def _event(self, outcome: str, reason: str, status: StreamStatus | None) -> TriggerEvent:
        return TriggerEvent(  # type: ignore[no-untyped-call]
            {
                "outcome": outcome,
                "reason": reason,
                "status": status.as_dict() if status else None,
                "goal": self.goal,
                "then": self.then,
                "handle": self.handle,
            }
        )

    async def on_kill(self) -> None:
        """Apply `on_kill_action` when a user ends the deferred task."""
        if (self.on_kill_action == "leave" and self.handle is None) or await self._is_still_deferred():
            return
        control = self._control or await StreamHook(Stream.from_dict(self.stream), self.by).aget_conn()
        if self.handle is not None:
            await off_the_loop(control.end_job, Handle.from_dict(self.handle))
        if self.on_kill_action == "leave":
            return
        if self.on_kill_action == "stop":
            await off_the_loop(control.request_stop, "the Airflow task was ended")
        else:
            await off_the_loop(control.kill, wait=0)

    async def _is_still_deferred(self) -> bool:
        """Whether the task continues: Airflow also calls on_kill when a trigger moves to another triggerer."""
        ti = self.task_instance
        if ti is None:
            return False
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
        from asgiref.sync import sync_to_async

        states = await sync_to_async(RuntimeTaskInstance.get_task_states)(
            dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
        )
        return "deferred" in [state for tasks in states.values() for state in tasks.values()]


def _is_final(error: Exception) -> bool:
    """Whether another check would fail too, because the declaration or a connection is wrong."""
    from airflow_ckpt.exceptions import BadConnection, BadStream, UnknownConnection

    # The operator has found its connections before it deferred, so a connection that is unknown now may be found again.
    return isinstance(error, BadConnection | BadStream) and not isinstance(error, UnknownConnection)
