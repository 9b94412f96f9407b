"""Observes a stream: reads run record, intent, checkpoint, driver and Kafka, and derives the status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.streams.driver_state import ENDED, UNKNOWN, VANISHED, DriverState, Handle
from airflow_ckpt.streams.observation import Observation
from airflow_ckpt.streams.status import HEALTHY, StreamStatus
from airflow_ckpt.streams.status_rules import derive
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.current_driver import current_driver
from airflow_ckpt.supervision.intent_files import add_handle
from airflow_ckpt.supervision.source_position import position_in_checkpoint, with_source_ends
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import Unreadable
from ckpt_stream.machine.process_identity import is_alive_here
from ckpt_stream.protocol.run_files.record_files import STOP
from ckpt_stream.protocol.run_files.run_record import NOT_ENDED
from ckpt_stream.protocol.run_files.stop_requests import read_stop


@dataclass(frozen=True)
class LookBeforeStart:
    """One observation of a stream before a start: status and preflight are derived from the same facts.

    It is used for one decision. After a pause, a kill or a wait for another task, the stream is observed again.
    """

    seen: Observation
    status: StreamStatus


def observe(access: StreamAccess, *, lag_seconds: bool = False, for_start: bool = False) -> Observation:
    """Read files, driver and Kafka once, in this order."""
    found = current_driver(access.files)
    stop = read_stop(access.files.read(STOP))
    position = position_in_checkpoint(access, for_start=for_start)
    intent, driver = look_at_driver(access, found.intent)
    if found.unreadable is not None and not _has_died_writing(found.unreadable, intent, driver):
        raise found.unreadable
    # The time is taken before Kafka is asked, which may take long: the age of a heartbeat must not include that.
    now = datetime.now(UTC)
    position = with_source_ends(access, position, now, ages=lag_seconds)
    run = found.run
    # The run record of a run that has ended says so itself.
    lives = is_alive_here(run) if run is not None and run.state in NOT_ENDED else None
    return Observation(now, intent, run, driver, lives, position, stop)


def _has_died_writing(unreadable: Unreadable, intent: SubmitIntent | None, driver: DriverState | None) -> bool:
    """Whether the run record cannot be read and its driver is certainly dead: then the status follows from the intent alone."""
    return (
        intent is not None
        and unreadable.file.endswith(f"-{intent.token}.json")
        and driver is not None
        and driver.state in (ENDED, VANISHED)
    )


def look(access: StreamAccess, *, lag_seconds: bool = False) -> StreamStatus:
    return derive(access.stream, observe(access, lag_seconds=lag_seconds))


def look_before_start(access: StreamAccess, *, lag_seconds: bool = False) -> LookBeforeStart:
    """Observe a stream before a start. Raises the storage's error if the stream seems healthy but its checkpoint cannot be read:
    then its state is unknown, and nothing may be started that preflight could refuse."""
    seen = observe(access, lag_seconds=lag_seconds, for_start=True)
    status = derive(access.stream, seen)
    if seen.position.checkpoint_error is not None and status.state in HEALTHY:
        raise seen.position.checkpoint_error
    return LookBeforeStart(seen, status)


def look_at_driver(access: StreamAccess, intent: SubmitIntent | None) -> tuple[SubmitIntent | None, DriverState | None]:
    """The driver of this intent. If the submitter died before it knew the driver, the driver is found by its token."""
    runner = access.runner
    if intent is None or runner is None:
        return intent, None
    if runner.kind != intent.runner:
        return intent, DriverState(UNKNOWN, f"it was started by the runner {intent.runner!r}, not {runner.kind!r}")
    try:
        if intent.handle is None:
            found = runner.find(intent.token)
            if found is None:
                return intent, None
            intent = add_handle(access.files, intent, found.as_dict())
        return intent, runner.look(Handle.from_dict(intent.handle or {}))
    except RunnerError as e:
        return intent, DriverState(UNKNOWN, str(e))
