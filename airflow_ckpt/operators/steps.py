"""The steps of an operator: it is done, or it waits for something and goes on with the method that the step names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_ckpt.streams.goal import Goal, Outcome
from airflow_ckpt.streams.status import StreamStatus

#: What the trigger sends at the end of a wait, and what a wait in the worker ends with.
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Done:
    """The task is done; the value goes to XCom."""

    value: Any


@dataclass(frozen=True)
class Wait:
    """Wait until the goal is reached or out of reach, then call the method named."""

    goal: Goal
    then: str


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds, then call the method named."""

    seconds: float
    then: str


@dataclass(frozen=True)
class WaitForJob:
    """Wait until a job beside the stream has ended or its result exists, then call the method named."""

    handle: Mapping[str, Any]
    then: str
    #: A file below the checkpoint. Where the job's state is unknown, this file shows that the job is over.
    result: str


WaitingStep = Wait | Pause | WaitForJob
Step = Done | WaitingStep


def event_of(
    then: str, outcome: str, reason: str, *, status: StreamStatus | None = None, goal: Goal | None = None
) -> dict[str, Any]:
    """The event that ends a wait, as the trigger would send it."""
    return {
        "outcome": outcome,
        "reason": reason,
        "status": status.as_dict() if status else None,
        "goal": goal.as_dict() if goal else {},
        "then": then,
    }


def end_event(step: Wait, outcome: Outcome, status: StreamStatus) -> Event:
    return event_of(step.then, outcome.outcome, outcome.reason, status=status, goal=step.goal)


def moment_in(seconds: float) -> str:
    """The time of day that is so many seconds away, as goals hold it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
