"""The stream that the tests of its status look at, how its driver can be, and a look at it."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from typing import Any

from airflow_ckpt.streams import driver_state
from airflow_ckpt.streams.driver_state import DriverState
from airflow_ckpt.streams.observation import Observation, SourcePosition
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.status_rules import derive
from ckpt_stream.protocol.run_files.run_record import RunRecord
from tests.airflow_ckpt.supervision.samples import a_run, a_stream, at

#: Of the stream that every test here looks at.
WINDOW, START_TIMEOUT = 60, 300
STREAM = a_stream(stall_after=timedelta(seconds=WINDOW), start_timeout=timedelta(seconds=START_TIMEOUT))

LIVES = DriverState(driver_state.RUNNING, "process 7", url="/var/log/driver.log")
WAITS = DriverState(driver_state.WAITING, "ACCEPTED by YARN")
ENDED = DriverState(driver_state.ENDED, "exit code 1", 1, ended_at=at(30).timestamp())
ENDED_WITH_ZERO = DriverState(driver_state.ENDED, "exit code 0", 0, ended_at=at(30).timestamp())
VANISHED = DriverState(driver_state.VANISHED, "process 7 is gone and left no exit status")
UNKNOWN = DriverState(driver_state.UNKNOWN, "it runs on another machine")
#: Heartbeats come every 5 seconds, and six missed ones mean death.
DEAD_AFTER = 30


def status(now: float, **seen: Any) -> StreamStatus:
    position = {f.name: seen.pop(f.name) for f in fields(SourcePosition) if f.name in seen}
    return derive(STREAM, Observation(at(now), position=SourcePosition(**position), **seen))


def running(now: float, **values: Any) -> RunRecord:
    """A run that runs since second 10 and was heard of just now."""
    return a_run(("STARTING", 0), ("RUNNING", 10), **{"heartbeat": now, **values})
