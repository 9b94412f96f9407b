"""The states of a driver, as its runner sees it, and the handle that names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The states of a driver. Only RUNNING and ENDED are positive signs; VANISHED is never success.
WAITING, RUNNING, ENDED, VANISHED, UNKNOWN = "WAITING", "RUNNING", "ENDED", "VANISHED", "UNKNOWN"
LIVE = (WAITING, RUNNING)


@dataclass(frozen=True)
class Handle:
    """Names one driver, also after its end; JSON, small, without secrets."""

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
    """The state of a driver, as its runner sees it."""

    state: str
    #: In words: an exit code, YARN's final status and diagnostics, a pod's reason.
    detail: str = ""
    exit_code: int | None = None
    #: Where a user can look: Spark UI, YARN's tracking page, a log file.
    url: str = ""
    #: When it ended, in seconds since the epoch, where that is known.
    ended_at: float | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE
