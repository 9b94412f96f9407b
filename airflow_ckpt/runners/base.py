"""What a runner is: it starts one driver, finds it again by its token, tells how it is, and ends it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from airflow_ckpt.exceptions import CkptError

#: What a driver can be. Only RUNNING and ENDED are positive signs; VANISHED is never success.
WAITING, RUNNING, ENDED, VANISHED, UNKNOWN = "WAITING", "RUNNING", "ENDED", "VANISHED", "UNKNOWN"
LIVE = (WAITING, RUNNING)


class RunnerError(CkptError):
    """The driver could not be started, asked or ended."""


class SubmitFailed(RunnerError):
    """spark-submit ended without a driver."""


@dataclass(frozen=True)
class Handle:
    """Names one driver for good; JSON, small, without secrets."""

    kind: str
    #: Process id, YARN application id, or `namespace:pod`.
    id: str
    token: str
    #: What the runner needs to find it again: host, start time, log file, ...
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Handle:
        return cls(str(value["kind"]), str(value["id"]), str(value["token"]), dict(value.get("details") or {}))


@dataclass(frozen=True)
class DriverState:
    """How a driver is, as its runner sees it."""

    state: str
    #: In words: an exit code, YARN's final status and diagnostics, a pod's reason.
    detail: str = ""
    exit_code: int | None = None
    #: Where people can look: Spark UI, YARN's tracking page, a log file.
    url: str = ""
    #: When it ended, in seconds since the epoch, where that is known.
    ended_at: float | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class Launch:
    """One spark-submit, ready to run. `argv` holds no secrets; they are in a file only its owner can read."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    #: A folder of this run alone, on this machine: configuration, library, log, exit status.
    folder: Path
    #: Files that must be gone when the driver has ended, or spark-submit has handed them over.
    secret_files: tuple[str, ...] = ()

    def discard(self) -> None:
        """Delete what was made for a driver that is not started after all."""
        for name in self.secret_files:
            Path(name).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Runner(Protocol):
    """One way to run drivers."""

    kind: str

    def properties(self, token: str) -> Mapping[str, str]:
        """Spark properties that make a driver findable by its token, and the submit return at once."""

    def start(self, launch: Launch, token: str) -> Handle:
        """Start the driver, detached from this process. Raises SubmitFailed with the reason."""

    def find(self, token: str) -> Handle | None:
        """The driver that was started with this token, if there is one, dead or alive. Raises RunnerError if that is unknown."""

    def look(self, handle: Handle) -> DriverState:
        """How it is. Not found is VANISHED, no answer UNKNOWN; never raises for either."""

    def kill(self, handle: Handle, *, wait: float = 30.0) -> DriverState:
        """End it at once, from whatever process and after whatever restart; with wait=0 only send the order."""

    def log_tail(self, handle: Handle, lines: int = 50) -> str:
        """The end of the driver's log where it can be had from here; else where to find it."""
