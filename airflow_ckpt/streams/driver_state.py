"""The states of a driver, as its runner reports them, and the handle that identifies a driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The states of a driver. RUNNING and ENDED are certain. VANISHED: no driver was found, which never counts as success.
WAITING, RUNNING, ENDED, VANISHED, UNKNOWN = "WAITING", "RUNNING", "ENDED", "VANISHED", "UNKNOWN"
LIVE = (WAITING, RUNNING)


@dataclass(frozen=True)
class Handle:
    """Identifies one driver, also after its end; small, JSON, without secrets."""

    kind: str
    #: Process id, YARN application id, or `namespace:pod`.
    id: str
    token: str
    #: What the runner needs to find the driver again: host, start time, log file, ...
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Handle:
        return cls(str(value["kind"]), str(value["id"]), str(value["token"]), dict(value.get("details") or {}))


@dataclass(frozen=True)
class DriverState:
    """The state of a driver, as its runner reports it."""

    state: str
    #: Details as a text: an exit code, YARN's final status and diagnostics, a pod's reason.
    detail: str = ""
    exit_code: int | None = None
    #: Where a user can look: Spark UI, YARN's tracking page, a log file.
    url: str = ""
    #: When the driver ended, in seconds since the epoch, if that is known.
    ended_at: float | None = None

    @property
    def live(self) -> bool:
        return self.state in LIVE
