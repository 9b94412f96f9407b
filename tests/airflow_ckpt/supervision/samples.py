"""Streams, runs and intents for tests, with times in seconds after one fixed moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_ckpt.streams.observation import PartitionLag, SourcePosition
from airflow_ckpt.streams.preflight import StartConditions
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.observing import LookBeforeStart
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport
from ckpt_stream.protocol.run_files.run_record import Failure, RunRecord

TOKEN = "t1"
T0 = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    return at(seconds).isoformat(timespec="milliseconds")


def a_stream(**settings: Any) -> Stream:
    given = {
        "name": "orders",
        "application": "orders.py",
        "checkpoint": "file:///data/orders",
        "source": "orders_in",
        "sink": "orders_out",
        **settings,
    }
    return Stream(**given)


def a_run(*states: tuple[str, float], token: str = TOKEN, heartbeat: float | None = None, **values: Any) -> RunRecord:
    """A run that entered these states at these times, and has last been heard of with the last one or at `heartbeat`."""
    run = RunRecord("run-1", "orders", token, **values)
    for state, when in states:
        run.state = state
        run.history.append({"state": state, "time": text(when)})
    run.heartbeat = text(states[-1][1] if heartbeat is None else heartbeat)
    return run


def a_batch(number: int, ended: float, rows: int = 100, millis: int = 500) -> dict[str, Any]:
    return {"batch": number, "ended": text(ended), "input_rows": rows, "durations_ms": {"triggerExecution": millis}}


def a_failure(error: str = "SinkError", message: str = "Kafka is away", *, helps: bool = True) -> Failure:
    return Failure(error, message, restart_may_help=helps)


def an_intent(token: str = TOKEN, when: float = 0, **values: Any) -> SubmitIntent:
    return SubmitIntent(token, text(when), "dag.submit run", "process", **values)


def a_checkpoint(committed: int | None = 4, in_doubt: int | None = None, **values: Any) -> CheckpointReport:
    return CheckpointReport(newest=in_doubt if in_doubt is not None else committed, committed=committed, **values)


def a_lag(*records: int | None, seconds: float | None = None) -> tuple[PartitionLag, ...]:
    return tuple(
        PartitionLag("orders_in", p, None if n is None else 100 - n, 100, n, seconds) for p, n in enumerate(records)
    )


def a_status(state: str = "RUNNING", **values: Any) -> StreamStatus:
    return StreamStatus(**{"stream": "orders", "state": state, "reason": "", "time": text(0), **values})


def start_with(**position: Any) -> Callable[[StreamAccess, LookBeforeStart], StartConditions]:
    """In the place of `read_start_conditions`: nothing speaks against a start, except this position in the source."""
    return lambda access, look: StartConditions(look.status, SourcePosition(**position), time.time())
