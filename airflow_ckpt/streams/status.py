"""The status of a stream: one of eight states, with the numbers that a user needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.observation import PartitionLag

STARTING, RUNNING, IDLE, STALLED = "STARTING", "RUNNING", "IDLE", "STALLED"
FAILED, LOST, STOPPED, FINISHED = "FAILED", "LOST", "STOPPED", "FINISHED"
#: In addition to the eight states: the stream was never started.
NEW = "NEW"

HEALTHY = (STARTING, RUNNING, IDLE)
#: A resume restarts a stream in one of these states.
BROKEN = (FAILED, LOST, STALLED)
ENDED_WELL = (STOPPED, FINISHED)


@dataclass(frozen=True)
class StreamStatus:
    """The state of a stream, with the numbers that a user needs; JSON through `as_dict`."""

    stream: str
    state: str
    reason: str
    time: str
    run: str | None = None
    token: str | None = None
    started: str | None = None
    batch: int | None = None
    in_doubt: int | None = None
    batches_in_run: int = 0
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    last_commit: str | None = None
    age_seconds: float | None = None
    rows_per_second: float | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    partitions: tuple[PartitionLag, ...] = ()
    ui: str | None = None
    log: str | None = None
    driver: Mapping[str, Any] | None = None
    failure: Mapping[str, Any] | None = None
    #: When the stream failed, stalled or was lost; None in any other state.
    broken_since: str | None = None
    restart_may_help: bool = True
    #: A stop was requested and no driver has obeyed it yet: the stream is not restarted.
    stop: Mapping[str, Any] | None = None
    #: The driver obeys a request to stop, and ends after its batch.
    stopping: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def drained(self) -> bool:
        """No input is waiting, and no batch is in doubt."""
        return self.lag_records == 0 and self.in_doubt is None

    def line(self) -> str:
        """One line for a log."""
        parts = [f"{self.stream} is {self.state}"]
        if self.batch is not None:
            parts.append(f"batch {self.batch} committed")
        if self.age_seconds is not None:
            parts.append(f"{in_words(self.age_seconds)} ago")
        if self.rows_per_second is not None:
            parts.append(f"{self.rows_per_second:,.0f} rows/s")
        if self.lag_records is not None:
            parts.append(f"lag {self.lag_records:,}" + (f" ({in_words(self.lag_seconds)})" if self.lag_seconds else ""))
        if self.reason:
            parts.append(self.reason)
        return ", ".join(parts)
