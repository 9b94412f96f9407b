"""Ends the driver of a stream: requests a stop after its batch, or kills it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from airflow_ckpt.exceptions import NotSubmitted, StillAlive
from airflow_ckpt.runners.base import Runner
from airflow_ckpt.streams.driver_state import ENDED, UNKNOWN, VANISHED, DriverState, Handle
from airflow_ckpt.streams.status import BROKEN, HEALTHY, StreamStatus
from airflow_ckpt.streams.status_rules import pending_stop
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision import intent_files
from airflow_ckpt.supervision.current_driver import current_driver
from airflow_ckpt.supervision.observing import look, look_at_driver
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.run_files import record_files, stop_requests

log = logging.getLogger(__name__)

#: How often a stop request is written again for a stream that is being restarted.
STOP_TRIES = 5


def request_stop(access: StreamAccess, by: str, reason: str = "") -> StreamStatus:
    """Request that the driver ends after its batch; if the stream is broken, request that it is not restarted.

    The request is valid until a new submit. A stream that ended on purpose, or was never started, is not changed. Kafka is not
    asked: it may be unreachable, and a task that is ended by hand has no time to wait for it.
    """
    access = replace(access, kafka=None)
    status = look(access)
    for _ in range(STOP_TRIES):
        if status.state not in (*HEALTHY, *BROKEN):
            break
        asked = (status.run, status.token)
        access.files.write(record_files.STOP, stop_requests.stop_request(by, reason, *asked))
        status = look(access)
        if status.state not in HEALTHY or (status.token == asked[1] and (status.stop or status.stopping)):
            break
        # Another task or a user has restarted the stream. Its new driver may have looked for a request before this request
        # was written, or deleted this request together with an earlier one.
    return status


def stop_is_pending(access: StreamAccess) -> bool:
    """Whether a stop request has not been obeyed yet. A driver that is started later finds a later request by itself."""
    current = current_driver(access.files)
    if current.unreadable is not None:
        raise current.unreadable
    request = stop_requests.read_stop(access.files.read(record_files.STOP))
    return pending_stop(request, current.run, current.intent) is not None


def kill(access: StreamAccess, runner: Callable[[], Runner], by: str, *, wait: float = 30.0) -> None:
    """End the driver at once. The next run repeats the current batch, so nothing is lost."""
    stream = access.stream
    found = _submitted_driver(access)
    if found is None:
        raise NotSubmitted(
            f"No driver of {stream.name} is known that could be killed: it was not started by Airflow. "
            f"`airflow-ckpt stop {stream.checkpoint}` asks it to end; else end it where it was started.",
            kind="no_driver_known",
        )
    intent, handle, driver = found
    if not driver.live and driver.state != UNKNOWN:
        return
    # The note comes first: a status that is derived during the kill must not be LOST.
    intent_files.note_kill(access.files, intent, by)
    try:
        state = runner().kill(handle, wait=wait)
    except BaseException:
        # Also when Airflow ends the task during the kill: if the driver was not killed and dies later, it is LOST.
        intent_files.withdraw_kill(access.files, intent)
        raise
    log.info("killed the driver of %s: %s", stream.name, state.detail or state.state)


def end_stalled(access: StreamAccess, runner: Callable[[], Runner], status: StreamStatus) -> None:
    """Kill a stalled driver. A stop request would make the stream STOPPED, which is not restarted if this restart fails."""
    stream = access.stream
    found = _submitted_driver(access)
    if found is None:
        raise NotSubmitted(
            f"{stream.name} is stalled and was not started by Airflow, so it cannot be ended from here. End its "
            f"driver (run {status.run}, {status.ui or 'no UI'}) by hand, or ask it with `airflow-ckpt stop "
            f"{stream.checkpoint}`, then start it: `airflow-ckpt resume {stream.checkpoint} --new-budget`.",
            kind="not_started_by_airflow",
        )
    intent, handle, _ = found
    if intent.token != status.token:
        # Another task or a user has ended this driver and started the next one.
        return
    log.info("killing the stalled driver; the next run repeats its batch")
    left = runner().kill(handle)
    if left.state not in (ENDED, VANISHED):
        raise StillAlive(
            f"The stalled driver of {stream.name} was killed, but is {left.state} ({left.detail or 'no detail'}). No new "
            "driver was started, because there might be two on one checkpoint. Once the end of the driver is confirmed or its "
            "heartbeat stops, the stream counts as LOST and is resumed: look at "
            f"`airflow-ckpt status {stream.checkpoint}`, or end the driver ({handle.id}) by hand."
        )


def _submitted_driver(access: StreamAccess) -> tuple[SubmitIntent, Handle, DriverState] | None:
    """The current driver, if Airflow submitted it and its runner is known here."""
    intent, driver = look_at_driver(access, current_driver(access.files).intent)
    if intent is None or intent.handle is None or driver is None:
        return None
    return intent, Handle.from_dict(intent.handle), driver
