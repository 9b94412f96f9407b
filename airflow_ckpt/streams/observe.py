"""One look at a stream: read run record, intent, checkpoint, driver and Kafka, and derive its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.checkpoint.reader import Checkpoint, read_checkpoint
from airflow_ckpt.kafka.clients import shared_admin
from airflow_ckpt.kafka.lag import first_unread, source_ends, waiting_since
from airflow_ckpt.kafka.offsets import Ends, Kafka, KafkaUnreachable
from airflow_ckpt.runners.base import ENDED, UNKNOWN, VANISHED, DriverState, Handle, Runner, RunnerError
from airflow_ckpt.streams.current import current
from airflow_ckpt.streams.intent import SubmitIntent, answered
from airflow_ckpt.streams.status import Observation, PartitionLag, StreamStatus, derive
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.look_again import Unreadable
from ckpt_stream.run_record import STOP, read_stop


@dataclass(frozen=True)
class Sources:
    """Where a stream can be looked at; everything is resolved, nothing here knows Airflow."""

    stream: Stream
    files: FsspecFiles
    #: librdkafka settings with secrets; None: do not ask Kafka.
    kafka: Kafka | None
    runner: Runner | None


def observe(sources: Sources, *, lag_seconds: bool = False) -> Observation:
    """Look once. Files first: what Kafka says afterwards can only be newer than what the checkpoint has committed."""
    files = sources.files
    found = current(files)
    run, torn = found.run, found.torn
    stop = read_stop(files.read(STOP))
    checkpoint = read_checkpoint(files, with_metadata=False)
    intent, driver = look_at_driver(sources, found.intent)
    if torn is not None and not _has_died_writing(torn, intent, driver):
        raise torn
    lag: tuple[PartitionLag, ...] | None = None
    kafka_error = ""
    now = datetime.now(UTC)
    if sources.kafka is not None:
        try:
            lag = read_lag(sources.stream, sources.kafka, checkpoint, now, with_seconds=lag_seconds)
        except KafkaUnreachable as e:
            kafka_error = str(e)
    return Observation(now, intent, run, checkpoint, driver, lag, kafka_error, stop)


def _has_died_writing(torn: Unreadable, intent: SubmitIntent | None, driver: DriverState | None) -> bool:
    """Whether the run record cannot be read because its driver is dead for certain: then its intent tells about it."""
    return (
        intent is not None
        and torn.file.endswith(f"-{intent.token}.json")
        and driver is not None
        and driver.state in (ENDED, VANISHED)
    )


def look(sources: Sources, *, lag_seconds: bool = False) -> StreamStatus:
    return derive(sources.stream, observe(sources, lag_seconds=lag_seconds))


def look_at_driver(sources: Sources, intent: SubmitIntent | None) -> tuple[SubmitIntent | None, DriverState | None]:
    """The driver of this intent. One whose submitter died before it got an answer is found by its token."""
    runner = sources.runner
    if intent is None or runner is None:
        return intent, None
    if runner.kind != intent.runner:
        return intent, DriverState(UNKNOWN, f"it was started by the runner {intent.runner!r}, not {runner.kind!r}")
    try:
        if intent.handle is None:
            found = runner.find(intent.token)
            if found is None:
                return intent, None
            intent = answered(sources.files, intent, found.as_dict())
        return intent, runner.look(Handle.from_dict(intent.handle or {}))
    except RunnerError as e:
        return intent, DriverState(UNKNOWN, str(e))


def read_lag(
    stream: Stream, kafka: Kafka, checkpoint: Checkpoint, now: datetime, *, with_seconds: bool
) -> tuple[PartitionLag, ...]:
    """What waits in each source partition."""
    config = stream.config
    ends = source_ends(shared_admin(kafka), config.source, config.source_pattern)
    offsets = checkpoint.committed_offsets
    since = waiting_since(kafka, first_unread(offsets, ends)) if with_seconds else {}
    found = []
    for topic, end in ends.items():
        for partition, stable in (end.stable if end else {}).items():
            found.append(_partition(topic, partition, stable, end, offsets.get(topic, {}), since, now, with_seconds))
    return tuple(found)


def _partition(
    topic: str,
    partition: int,
    stable: int,
    end: Ends | None,
    offsets: Mapping[str, int],
    since: dict[tuple[str, int], float],
    now: datetime,
    with_seconds: bool,
) -> PartitionLag:
    committed = offsets.get(str(partition))
    records = max(0, stable - committed) if committed is not None else None
    if committed is None and end is not None and end.earliest[partition] == stable:
        records = 0
    seconds: float | None = None
    if with_seconds and records == 0:
        seconds = 0.0
    elif (topic, partition) in since:
        seconds = round(max(0.0, now.timestamp() - since[(topic, partition)]), 1)
    return PartitionLag(topic, partition, committed, stable, records, seconds)
