"""A cluster in memory: drivers that a test starts, breaks and asks, and what they would write beside the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, DriverState, Handle
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.intent_files import read_intent
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.run_files.restart_history import read_history
from ckpt_stream.protocol.run_files.run_record import Failure, RunRecord, run_name

TEN_SECONDS = timedelta(seconds=10)


class FakeRunner:
    """Keeps drivers by token, also after the end of the worker that started them, as a cluster does."""

    kind = "process"

    def __init__(self) -> None:
        self.drivers: dict[str, DriverState] = {}
        self.started: list[str] = []
        self.killed: list[str] = []
        #: Called with the token before and after a driver is there: the place to fail, or to die.
        self.before: Callable[[str], None] = lambda token: None
        self.after: Callable[[str], None] = lambda token: None
        self.on_kill: Callable[[str], None] = lambda token: None
        #: How a driver is after it was killed.
        self.after_kill = DriverState(ENDED, "exit code 143 (SIGTERM)", 143)

    def properties(self, token: str) -> Mapping[str, str]:
        return {}

    def start(self, launch: Launch, token: str) -> Handle:
        self.before(token)
        self.started.append(token)
        self.drivers[token] = DriverState(RUNNING, f"driver {token}")
        self.after(token)
        return self._handle(token)

    def _handle(self, token: str) -> Handle:
        return Handle(self.kind, f"id-{token}", token, {"log": f"/log/{token}"})

    def find(self, token: str) -> Handle | None:
        return self._handle(token) if token in self.drivers else None

    def look(self, handle: Handle) -> DriverState:
        return self.drivers[handle.token]

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        self.on_kill(handle.token)
        self.killed.append(handle.token)
        self.drivers[handle.token] = self.after_kill
        return self.drivers[handle.token]

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        return f"the last {lines} lines of {handle.token}"


#: The error that `Deployment.fails` fails with, and its message.
FAILURE = ("SinkError", "Kafka is away")


class Deployment:
    """One stream's checkpoint and cluster. Every `control()` is another worker that knows nothing of the others."""

    def __init__(self, folder: Path, stream: Stream) -> None:
        self.folder, self.stream = folder, stream
        self.runner = FakeRunner()
        self.files = FsspecFiles(str(folder))
        self.requests: list[LaunchRequest] = []
        self.runs: dict[str, RunRecord] = {}

    def control(self, by: str = "ann", **changes: Any) -> StreamControl:
        access = StreamAccess(
            **{"stream": self.stream, "files": self.files, "kafka": None, "runner": self.runner, **changes}
        )
        return StreamControl(access, self._launch, by)

    def _launch(self, request: LaunchRequest) -> Launch:
        self.requests.append(request)
        return Launch(("spark-submit", "--name", request.token), {"A": "b"}, self.folder / request.token)

    @property
    def token(self) -> str:
        """Of the driver that was started last."""
        return self.runner.started[-1]

    def says(
        self, *states: str, ago: float = 0.0, failure: Failure | None = None, token: str | None = None
    ) -> RunRecord:
        """The newest driver enters these states; with `ago`, it did so a while ago and has been silent since."""
        token = token or self.token
        when = datetime.now(UTC) - timedelta(seconds=ago)
        run = self.runs.setdefault(token, RunRecord(run_name(datetime.now(UTC), token), self.stream.name, token))
        for state in states:
            run.state = state
            run.history.append({"state": state, "time": when.isoformat(timespec="milliseconds")})
        run.heartbeat, run.failure = when.isoformat(timespec="milliseconds"), failure
        self.files.write(run.path, run.to_json())
        if run.state in ("FAILED", "STOPPED", "FINISHED") and token in self.runner.drivers:
            self.runner.drivers[token] = DriverState(ENDED, "exit code", int(run.state == "FAILED"))
        return run

    def fails(self, *, ago: float = 0.0, curable: bool = True) -> None:
        """The newest driver starts, runs and fails."""
        failure = Failure(*FAILURE, restart_may_help=curable)
        self.says("STARTING", "RUNNING", "FAILED", ago=ago, failure=failure)


def sleep_until(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> list[float]:
    """A pause takes no time, and this happens in it."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        meanwhile()

    monkeypatch.setattr(time, "sleep", sleep)
    return pauses


def intent_of(world: Deployment) -> SubmitIntent:
    intent = read_intent(world.files)
    assert intent is not None
    return intent


def kinds(world: Deployment) -> list[str]:
    return [entry["kind"] for entry in read_history(world.files)]


def stalled(world: Deployment) -> None:
    """The newest driver lives, and its heartbeat has not moved for two windows."""
    world.control().submit()
    world.says("STARTING", "RUNNING", ago=120)
    assert world.control().status().state == "STALLED"
