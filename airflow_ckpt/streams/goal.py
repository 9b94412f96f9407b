"""The goal of a wait: the conditions that a task or a user waits for, and whether a stream meets them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from airflow_ckpt.exceptions import BadArgument, OtherVersion
from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.status import BROKEN, ENDED_WELL, FINISHED, IDLE, NEW, RUNNING, StreamStatus

REACHED, OUT_OF_REACH, TIMEOUT, NOT_YET = "reached", "failed", "timeout", "waiting"


@dataclass(frozen=True)
class Outcome:
    """The result of one check of the stream."""

    outcome: str
    reason: str


@dataclass(frozen=True)
class Goal:
    """The conditions of a wait. All conditions that are set must hold at the same time. Stored as JSON in a trigger."""

    #: The run record has the state RUNNING.
    started: bool = False
    #: The current run has committed so many batches.
    batches: int | None = None
    #: This batch, by number, is committed.
    batch: int | None = None
    #: A batch after this batch is committed, or no input is waiting.
    after_batch: int | None = None
    #: These offsets are committed: {topic: {partition: offset}}.
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: At most so many records are unread.
    max_lag: int | None = None
    #: No input is waiting and no batch is in doubt; or everything before `ends` is committed, because a busy topic always has
    #: unread input.
    drained: bool = False
    #: Where the input ended when the wait began: {topic: {partition: offset}}.
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: The run has ended without an error.
    ended: bool = False
    #: Never satisfied by the stream's state; ends at `until` or `deadline`.
    never: bool = False
    #: The goal is reached at this moment, whatever the state of the stream.
    until: str | None = None
    #: After this moment the wait has timed out.
    deadline: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) not in (f.default, {})}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Goal:
        """Read a stored goal. An unknown field raises an error, because this version could not wait for that condition."""
        if unknown := sorted(set(value) - {f.name for f in fields(cls)}):
            raise OtherVersion(
                f"The goal has no field {', '.join(unknown)}: it was stored by another version of airflow-ckpt. "
                "Clear the task, so that it waits for a goal of this version; or install the version that stored it."
            )
        return cls(**value)

    def __post_init__(self) -> None:
        for name in ("batches", "batch", "max_lag"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise BadArgument(f"{name}={value!r} must be a whole number of at least 0.")

    @property
    def condition(self) -> str:
        words = []
        if self.started:
            words.append("it runs")
        if self.batches is not None:
            words.append(f"{self.batches} batch(es) committed in this run")
        if self.batch is not None:
            words.append(f"batch {self.batch} committed")
        if self.after_batch is not None:
            words.append(f"a batch after {self.after_batch} committed")
        if self.offsets:
            words.append(f"offsets {dict(self.offsets)} committed")
        if self.max_lag is not None:
            words.append(f"a lag of at most {self.max_lag:,}")
        if self.drained:
            words.append("all input committed")
        if self.ended:
            words.append("its end")
        if self.until:
            words.append(f"{self.until}")
        return " and ".join(words) or "its end"

    def judge(self, status: StreamStatus, now: datetime) -> Outcome:
        """Whether the goal is reached, out of reach (with the reason), timed out, or still waited for."""
        if self._holds(status):
            return Outcome(REACHED, status.line())
        if status.state in BROKEN:
            return Outcome(OUT_OF_REACH, f"{status.stream} is {status.state}: {status.reason}")
        if status.state in ENDED_WELL:
            return Outcome(OUT_OF_REACH, f"{status.stream} is {status.state} before it reached {self.condition}")
        if status.state == NEW:
            return Outcome(OUT_OF_REACH, f"{status.stream} was never started")
        if self.until is not None and now >= datetime.fromisoformat(self.until):
            return Outcome(REACHED, f"the end of the wait is reached: {status.line()}")
        if self.deadline is not None and now >= datetime.fromisoformat(self.deadline):
            return Outcome(TIMEOUT, f"{self.condition} was not reached in time: {status.line()}")
        return Outcome(NOT_YET, status.line())

    def _holds(self, status: StreamStatus) -> bool:
        wanted = [
            (self.started, status.state in (RUNNING, IDLE, *ENDED_WELL)),
            (self.batches is not None, status.batches_in_run >= (self.batches or 0)),
            (self.batch is not None, status.batch is not None and status.batch >= (self.batch or 0)),
            (self.after_batch is not None, self._moved(status)),
            (bool(self.offsets), _has(status, self.offsets)),
            (self.max_lag is not None, status.lag_records is not None and status.lag_records <= (self.max_lag or 0)),
            (self.drained, self._is_drained(status)),
            (self.ended, status.state in ENDED_WELL),
        ]
        asked = [holds for wants, holds in wanted if wants]
        return bool(asked) and all(asked) and not self.never

    def _moved(self, status: StreamStatus) -> bool:
        if status.state in (IDLE, FINISHED):
            return True
        return status.batch is not None and status.batch > (self.after_batch if self.after_batch is not None else -1)

    def _is_drained(self, status: StreamStatus) -> bool:
        if status.state not in (RUNNING, IDLE, *ENDED_WELL):
            return False
        return status.drained or (bool(self.ends) and _has(status, self.ends))


def _has(status: StreamStatus, offsets: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether these offsets are committed."""
    return all(
        int(status.offsets.get(topic, {}).get(str(partition), -1)) >= int(offset)
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    )


def waiting_line(outcome: Outcome, goal: Goal, now: datetime) -> str:
    """A progress line: the state of the stream, and the goal."""
    left = ""
    if goal.deadline:
        left = f", {in_words(max(0.0, (datetime.fromisoformat(goal.deadline) - now).total_seconds()))} left"
    return f"{outcome.reason} (waiting for {goal.condition}{left})"
