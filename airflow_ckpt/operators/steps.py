"""The steps of an operator: it is done, or it waits and then continues with the method that the step names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_ckpt.streams.goal import Goal, Outcome
from airflow_ckpt.streams.status import StreamStatus

#: The event at the end of a wait, from the trigger or from a wait in the worker.
Event = Mapping[str, Any]


@dataclass(frozen=True)
class Done:
    """The task is done; the value goes to XCom."""

    value: Any


@dataclass(frozen=True)
class Wait:
    """Wait until the goal is reached or out of reach, then call the named method."""

    goal: Goal
    then: str


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds, then call the named method."""

    seconds: float
    then: str


@dataclass(frozen=True)
class WaitForJob:
    """Wait until a job beside the stream has ended or its result exists, then call the named method."""

    handle: Mapping[str, Any]
    then: str
    #: A file below the checkpoint. If the job's state is unknown, this file shows that the job has ended.
    result: str


WaitingStep = Wait | Pause | WaitForJob
Step = Done | WaitingStep


def event_of(
    then: str, outcome: str, reason: str, *, status: StreamStatus | None = None, goal: Goal | None = None
) -> dict[str, Any]:
    """The event that ends a wait, in the form in which the trigger sends it."""
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
    """The time in so many seconds, in the form of a goal's times."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
