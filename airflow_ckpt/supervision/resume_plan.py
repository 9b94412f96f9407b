"""Decides whether and when a stream is restarted, from its state, its restart strategy and its remaining budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from airflow_ckpt.exceptions import NO_CURE, GivenUp
from airflow_ckpt.streams.restart_strategies import PastRestart
from airflow_ckpt.streams.status import BROKEN, HEALTHY, NEW, StreamStatus
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.protocol.run_files.restart_history import RESTART, SUBMIT, read_history
from ckpt_stream.protocol.storage import ReadableFiles


class Because(Enum):
    """The reason for the decision of a resume."""

    BROKEN = "broken"
    LIVES = "lives"
    NEVER_STARTED = "never_started"
    ENDED_ON_PURPOSE = "ended_on_purpose"


@dataclass(frozen=True)
class ResumePlan:
    """The decision of a resume."""

    #: none: nothing to do; wait: restart after `seconds`; start: restart now.
    action: str
    reason: str
    seconds: float = 0.0
    because: Because = Because.BROKEN
    #: The number of this restart, as the strategy counts; None: there is no restart.
    restart: int | None = None


def plan_resume(stream: Stream, files: ReadableFiles, status: StreamStatus) -> ResumePlan:
    """Decide on a stream in this state. Raises GivenUp if it has failed for good."""
    if status.state in HEALTHY:
        return ResumePlan("none", f"nothing to do: {status.line()}", because=Because.LIVES)
    if status.state not in BROKEN:
        words = "it was never started" if status.state == NEW else f"it ended on purpose ({status.state})"
        words += f": {status.reason}" if status.state != NEW and status.reason else ""
        because = Because.NEVER_STARTED if status.state == NEW else Because.ENDED_ON_PURPOSE
        return ResumePlan("none", f"nothing to resume: {words}; a submit starts it", because=because)
    if not status.restart_may_help:
        raise GivenUp(
            f"{stream.name} is {status.state} and a restart cannot help: {status.reason} {_how_to_start_again(stream)}",
            NO_CURE,
        )
    broken = datetime.fromisoformat(status.broken_since) if status.broken_since else datetime.now(UTC)
    decision = stream.restart.decide(budget(read_history(files)), broken)
    if not decision.allowed:
        raise GivenUp(
            f"{stream.name} has failed for good: {decision.reason}. Its last state is {status.state}: {status.reason} "
            f"{_how_to_start_again(stream)}"
        )
    left = (broken + decision.delay - datetime.now(UTC)).total_seconds()
    action = "wait" if left > 0 else "start"
    return ResumePlan(action, decision.reason, max(0.0, left), restart=decision.number)


def budget(history: Sequence[Mapping[str, Any]]) -> list[PastRestart]:
    """The restarts that count against a strategy's budget: the restarts since the last submit, from the restart history."""
    begin = max((i for i, entry in enumerate(history) if entry.get("kind") == SUBMIT), default=-1)
    return [
        PastRestart(datetime.fromisoformat(str(entry["time"])))
        for entry in history[begin + 1 :]
        if entry.get("kind", RESTART) == RESTART
    ]


def _how_to_start_again(stream: Stream) -> str:
    return (
        "When its cause is gone, start it with a new budget: by a new DAG run that submits it (a cleared task of this run has no "
        f"new budget), or with `airflow-ckpt resume {stream.checkpoint} --new-budget`."
    )
