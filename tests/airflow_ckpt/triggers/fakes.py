"""A stream that plays a script to a trigger, and triggers to watch it with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import Goal, Outcome
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from tests.airflow_ckpt.operators.fakes import FakeControl
from tests.airflow_ckpt.supervision.samples import a_status, a_stream


class WatchedStream(FakeControl):
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


Play = Callable[..., WatchedStream]


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
