"""The observation of a stream: everything that was read of it at one time. Status and preflight are derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_ckpt.streams.driver_state import DriverState
from airflow_ckpt.streams.submit_intent import SubmitIntent
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.topic_ends import TopicEnds


@dataclass(frozen=True)
class PartitionLag:
    """The unread records of one source partition."""

    topic: str
    partition: int
    committed: int | None
    end: int
    records: int | None
    #: Age of the oldest unread record; 0 if there is none, None if it was not asked for or is unknown.
    seconds: float | None = None


@dataclass(frozen=True)
class SourcePosition:
    """How far a stream has read its source: its checkpoint, and where the source's topics begin and end."""

    checkpoint: CheckpointReport | None = None
    #: The error because of which the checkpoint could not be read for a start.
    checkpoint_error: OSError | None = None
    #: The existing topics, and the declared topics that are missing (None). None: Kafka was not asked, or did not answer.
    topics: Mapping[str, TopicEnds | None] | None = None
    #: When the oldest unread record of a partition was written (seconds since the epoch). None: it was not asked for.
    unread_since: Mapping[tuple[str, int], float] | None = None
    #: None: unknown, like `topics`.
    lag: tuple[PartitionLag, ...] | None = None
    kafka_error: str = ""


@dataclass(frozen=True)
class Observation:
    """Everything that was read of a stream at one time; run, intent and driver are those of the current driver."""

    now: datetime
    intent: SubmitIntent | None = None
    run: RunRecord | None = None
    #: None: no runner has a driver (it was started by hand, or never).
    driver: DriverState | None = None
    #: Whether the run's process lives, if it is on the machine that looked; None: that machine cannot see it.
    process_lives: bool | None = None
    position: SourcePosition = field(default_factory=SourcePosition)
    #: The newest stop request beside the checkpoint, for whichever run it was made.
    stop: Mapping[str, Any] | None = None
