"""A stream's control that plays a script, and as much of a task's context as the operators ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.waiting import SHORT_PAUSE
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.observation import Observation
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.supervision.control import ResumePlan
from airflow_ckpt.supervision.observing import LookBeforeStart
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from tests.airflow_ckpt.supervision.samples import a_status, a_stream

Play = Callable[..., "FakeControl"]
NOW = ResumePlan("start", "restart 1 of 3")
SOON = ResumePlan("wait", "restart 1 of 3", SHORT_PAUSE)
LATER = ResumePlan("wait", "restart 1 of 3", 10.0)
NOTHING = ResumePlan("none", "nothing to do")


class FakeControl:
    """Shows one status after the other, the last one for ever; keeps what it was told to do."""

    def __init__(self, *statuses: StreamStatus | str) -> None:
        self.statuses = [a_status(s) if isinstance(s, str) else s for s in statuses] or [a_status()]
        self.plans: list[ResumePlan | Exception] = []
        self.by = "dag.task run"
        self.did: list[Any] = []
        #: Raised by every submit and resume.
        self.refusal: Exception | None = None
        #: The state that a kill leaves.
        self.after_kill = "STOPPED"

    def status(self) -> StreamStatus:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def look_before_start(self) -> LookBeforeStart:
        return LookBeforeStart(Observation(datetime.now(UTC)), self.status())

    def source_ends(self) -> dict[str, dict[str, int]]:
        return {"orders_in": {"0": 100}}

    def restarts_by_me(self) -> int:
        return sum(done[0] == "resume" for done in self.did)

    def submit(self, *, submission: str | None = None, allow: Sequence[str] = ()) -> StreamStatus:
        self.did.append(("submit", submission, tuple(allow)))
        if self.refusal:
            raise self.refusal
        return self.status()

    def plan_resume(self, status: StreamStatus) -> ResumePlan:
        plan = self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]
        if isinstance(plan, Exception):
            raise plan
        return plan

    def resume(self, look: LookBeforeStart, *, allow: Sequence[str] = ()) -> StreamStatus:
        self.did.append(("resume", look.status.state, tuple(allow)))
        if self.refusal:
            raise self.refusal
        return a_status("STARTING")

    def request_stop(self, reason: str = "") -> StreamStatus:
        self.did.append(("stop", reason))
        return self.status()

    def kill(self, *, wait: float = 30.0) -> None:
        self.did.append(("kill", wait))
        self.statuses = [a_status(self.after_kill)]

    def end_job(self, handle: Handle, *, wait: float = 0.0) -> None:
        self.did.append(("end_job", handle.token))

    def log_tail(self, lines: int = 50) -> str:
        return "the last line of the driver"


class Store(dict[str, Any]):
    """Airflow's task state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Events(dict[Any, Any]):
    """What a task says about its outlets."""

    def __missing__(self, key: Any) -> Any:
        self[key] = SimpleNamespace(extra={})
        return self[key]


def a_context(**values: Any) -> dict[str, Any]:
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(dag_id="dag", task_id="task", run_id="run", try_number=1, max_tries=0, pushed=pushed)
    ti.xcom_push = lambda key, value: pushed.update({key: value})
    return {"ti": ti, "task_state_store": Store(), "outlet_events": Events(), **values}


def make(kind: type[StreamOperator], **values: Any) -> Any:
    return kind(**{"task_id": "task", "stream": a_stream(), "poll_interval": 7, **values})


def deferred(call: Callable[[], Any]) -> CheckpointProgressTrigger:
    """The trigger that the operator waits with."""
    with pytest.raises(TaskDeferred) as caught:
        call()
    assert caught.value.method_name == "on_event"
    trigger = caught.value.trigger
    assert isinstance(trigger, CheckpointProgressTrigger)
    return trigger


def event(trigger: CheckpointProgressTrigger, status: StreamStatus | None, outcome: str = "reached") -> dict[str, Any]:
    """What the trigger would send, after its way through the database."""
    found = trigger._event(outcome, status.line() if status else "", status).payload
    again: dict[str, Any] = json.loads(json.dumps(found))
    return again
