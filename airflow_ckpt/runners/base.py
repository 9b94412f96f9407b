"""The interface of a runner: it starts a driver, finds it by its token, reports its state, and ends it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airflow_ckpt.streams.driver_state import ENDED, VANISHED, DriverState, Handle
from ckpt_stream.protocol.deadline import Deadline

#: Seconds between two requests to a cluster about the same driver.
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Launch:
    """One spark-submit, ready to run. `argv` holds no secrets; they are in a file that only its owner can read."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    #: A folder on this machine for this run only: configuration, library, log, exit status.
    folder: Path
    #: Files that must be deleted when the driver has ended, or when spark-submit has sent them to the cluster.
    secret_files: tuple[str, ...] = ()

    def discard(self) -> None:
        """Delete the folder and the secrets of a launch whose driver is not started."""
        for name in self.secret_files:
            Path(name).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Runner(Protocol):
    """One way to run drivers."""

    kind: str

    def properties(self, token: str) -> Mapping[str, str]:
        """Spark properties that let a driver be found by its token, and spark-submit return at once."""

    def start(self, launch: Launch, token: str) -> Handle:
        """Start the driver, detached from this process. Raises SubmitFailed with the reason."""

    def find(self, token: str) -> Handle | None:
        """The driver with this token, running or ended; None if there is none. Raises RunnerError if that is unknown."""

    def look(self, handle: Handle) -> DriverState:
        """The driver's state: VANISHED if it is not found, UNKNOWN if there is no answer. Raises no error."""

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        """End the driver at once, from any process, also after a restart of Airflow; wait=0 does not wait for the end."""

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        """The last lines of the driver's log, if this machine can read it; otherwise where the log is."""


def look_until_ended(runner: Runner, handle: Handle, deadline: Deadline) -> DriverState:
    """Wait for the end of the driver; returns its state then, or its last state before the deadline."""
    state = runner.look(handle)
    while state.state not in (ENDED, VANISHED) and not deadline.passed:
        time.sleep(POLL_SECONDS)
        state = runner.look(handle)
    return state
