"""Restart strategies with Flink's names and defaults. They decide from the restart history alone, so a budget stays the same when
Airflow restarts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar

from airflow_ckpt.exceptions import BadStream
from airflow_ckpt.streams.durations import in_words, to_timedelta


@dataclass(frozen=True)
class PastRestart:
    """A restart that was made, with the time of its request."""

    time: datetime


@dataclass(frozen=True)
class RestartDecision:
    """Whether a failed stream may be restarted, and after which pause since its failure."""

    allowed: bool
    delay: timedelta = timedelta(0)
    #: A text for the log: "restart 2 of 3, 10 s after the failure".
    reason: str = ""
    #: The number of this restart, as the strategy counts: 1 for the first. None: the restart is not allowed.
    number: int | None = None


class RestartStrategy:
    """Base of the four strategies."""

    type: ClassVar[str]

    def decide(self, restarts: Sequence[PastRestart], failed_at: datetime) -> RestartDecision:
        """Decide on the failure at `failed_at`, given the restarts of the current budget, oldest first."""
        raise NotImplementedError

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)  # type: ignore[call-overload]
        return {
            "type": self.type,
            **{k: v.total_seconds() if isinstance(v, timedelta) else v for k, v in values.items()},
        }

    def _durations(self, *names: str) -> None:
        for name in names:
            object.__setattr__(
                self, name, to_timedelta(getattr(self, name), f"{type(self).__name__}({name})", BadStream)
            )

    def _whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise BadStream(f"{type(self).__name__}({name}={value!r}) must be a whole number of at least {least}.")


@dataclass(frozen=True)
class NoRestart(RestartStrategy):
    """`none`: the first failure is final."""

    type: ClassVar[str] = "none"

    def decide(self, restarts: Sequence[PastRestart], failed_at: datetime) -> RestartDecision:
        return RestartDecision(False, reason="the restart strategy is none")


@dataclass(frozen=True)
class FixedDelay(RestartStrategy):
    """`fixed-delay`: restart up to `attempts` times, each time after the same pause; then the stream has failed for good."""

    attempts: int = 1
    delay: timedelta = timedelta(seconds=1)
    type: ClassVar[str] = "fixed-delay"

    def __post_init__(self) -> None:
        self._durations("delay")
        self._whole("attempts", 1)

    def decide(self, restarts: Sequence[PastRestart], failed_at: datetime) -> RestartDecision:
        used = len(restarts)
        if used >= self.attempts:
            return RestartDecision(False, reason=f"all {self.attempts} restarts of the fixed-delay strategy are used")
        words = f"restart {used + 1} of {self.attempts}, {in_words(self.delay.total_seconds())} after the failure"
        return RestartDecision(True, self.delay, words, used + 1)


@dataclass(frozen=True)
class FailureRate(RestartStrategy):
    """`failure-rate`: restart as long as there are at most `max_failures_per_interval` failures within `interval`."""

    max_failures_per_interval: int = 1
    interval: timedelta = timedelta(minutes=1)
    delay: timedelta = timedelta(seconds=1)
    type: ClassVar[str] = "failure-rate"

    def __post_init__(self) -> None:
        self._durations("interval", "delay")
        self._whole("max_failures_per_interval", 1)

    def decide(self, restarts: Sequence[PastRestart], failed_at: datetime) -> RestartDecision:
        recent = sum(restart.time > failed_at - self.interval for restart in restarts)
        limit, interval = self.max_failures_per_interval, in_words(self.interval.total_seconds())
        if recent >= limit:
            return RestartDecision(False, reason=f"more than {limit} failure(s) within {interval}")
        return RestartDecision(
            True, self.delay, f"failure {recent + 1} of at most {limit} within {interval}", recent + 1
        )


@dataclass(frozen=True)
class ExponentialDelay(RestartStrategy):
    """`exponential-delay`: restart after pauses that grow up to a limit; a healthy time resets the pause.

    `attempts` limits the number of restarts between two healthy times; None: no limit, as in Flink.
    """

    initial_backoff: timedelta = timedelta(seconds=1)
    max_backoff: timedelta = timedelta(minutes=1)
    multiplier: float = 1.5
    reset_after: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    attempts: int | None = None
    type: ClassVar[str] = "exponential-delay"

    def __post_init__(self) -> None:
        self._durations("initial_backoff", "max_backoff", "reset_after")
        if self.attempts is not None:
            self._whole("attempts", 1)
        if self.multiplier < 1:
            raise BadStream(f"ExponentialDelay(multiplier={self.multiplier!r}) must be at least 1.")
        if not 0 <= self.jitter <= 1:
            raise BadStream(f"ExponentialDelay(jitter={self.jitter!r}) must be between 0 and 1.")
        if self.max_backoff < self.initial_backoff:
            raise BadStream("ExponentialDelay(max_backoff) must not be shorter than initial_backoff.")

    def decide(self, restarts: Sequence[PastRestart], failed_at: datetime) -> RestartDecision:
        used = self._since_healthy(restarts, failed_at)
        if self.attempts is not None and used >= self.attempts:
            return RestartDecision(False, reason=f"all {self.attempts} restarts since the last healthy time are used")
        longest = self.max_backoff.total_seconds()
        seconds = self.initial_backoff.total_seconds()
        for _ in range(used):
            seconds = min(longest, seconds * self.multiplier)
            if seconds >= longest:
                break
        seconds = min(longest, seconds * (1 + self.jitter * _spread(failed_at)))
        words = f"restart {used + 1} since the last healthy time, {in_words(round(seconds, 1))} after the failure"
        return RestartDecision(True, timedelta(seconds=seconds), words, used + 1)

    def _since_healthy(self, restarts: Sequence[PastRestart], failed_at: datetime) -> int:
        """Restarts since the stream last ran for `reset_after` without a failure."""
        used, later = 0, failed_at
        for restart in reversed(restarts):
            if later - restart.time >= self.reset_after:
                break
            used, later = used + 1, restart.time
        return used


def _spread(moment: datetime) -> float:
    """A number from -1 to 1, derived from the time of the failure: the same in every check of this failure."""
    digest = hashlib.sha256(moment.isoformat().encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**63 - 1


STRATEGIES: Mapping[str, type[RestartStrategy]] = {
    s.type: s for s in (NoRestart, FixedDelay, FailureRate, ExponentialDelay)
}


def strategy_from(value: Mapping[str, Any]) -> RestartStrategy:
    """Make the strategy from the result of `as_dict`."""
    kind = STRATEGIES.get(str(value.get("type")))
    if kind is None:
        raise BadStream(f"restart type {value.get('type')!r} is none of {', '.join(STRATEGIES)}.")
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    given = {k: v for k, v in value.items() if k != "type"}
    if unknown := sorted(set(given) - set(known)):
        raise BadStream(f"The {kind.type} strategy has no setting {', '.join(unknown)}; it has {', '.join(known)}.")
    return kind(**given)
