"""What was seen of a stream in one look: what its status and preflight are derived from."""

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
    """What waits in one source partition."""

    topic: str
    partition: int
    committed: int | None
    end: int
    records: int | None
    #: Age of the oldest record that waits; 0 when none does, None when it was not asked for or is unknown.
    seconds: float | None = None


@dataclass(frozen=True)
class SourcePosition:
    """How far a stream has read its source: its checkpoint, and where the source's topics begin and end."""

    checkpoint: CheckpointReport | None = None
    #: Why the checkpoint could not be read for a start.
    checkpoint_error: OSError | None = None
    #: The topics that there are, and those that are declared and missing (None). None: Kafka was not asked, or gave no answer.
    topics: Mapping[str, TopicEnds | None] | None = None
    #: When the oldest unread record of a partition was written (seconds since the epoch). None: not asked.
    unread_since: Mapping[tuple[str, int], float] | None = None
    #: None: unknown, like `topics`.
    lag: tuple[PartitionLag, ...] | None = None
    kafka_error: str = ""


@dataclass(frozen=True)
class Observation:
    """Everything that was seen of a stream in one look; run, intent and driver are those of the current driver."""

    now: datetime
    intent: SubmitIntent | None = None
    run: RunRecord | None = None
    #: None: no runner knows a driver (it was started by hand, or never).
    driver: DriverState | None = None
    #: Whether the run's process lives, if it is on the machine that looked; None: that machine cannot see it.
    process_lives: bool | None = None
    position: SourcePosition = field(default_factory=SourcePosition)
    #: The newest stop request beside the checkpoint, whichever run it was meant for.
    stop: Mapping[str, Any] | None = None
