"""Kills processes with SIGKILL at the crash points that this process is armed for.

The environment variable ``CKPT_CRASH`` arms it; `protocol/crash_points.py` has the points and the form of a crash. The file
``once`` makes it happen a single time: it is created by the process about to die, so its presence afterwards proves that the
fault hit. Not armed, a point is an empty function. With an unusable text this module can still be imported: the run
that begins with it is refused, and so is a task that comes by a point.

A production driver may be armed too, as fire drills are for: all that a point can do is kill the driver and its worker,
which the protocol survives wherever it happens. An armed driver says so in its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.crash_points import ENVIRONMENT, armed_crashes

Reach = Callable[..., None]


def _never(_point: str, **_where: Any) -> None:
    """Not armed."""


def _refuse(_point: str, **_where: Any) -> None:
    """The variable is not valid: a drill without its crash would prove nothing."""
    refuse_unusable()


def is_due(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> bool:
    """Whether this point is armed, has not been reached yet, and there is a process to kill."""
    return _due(point, batch, lane, driver_pids) is not None


def _due(point: str, batch: int, lane: int | None, driver_pids: tuple[int, ...]) -> dict[str, Any] | None:
    for crash in _armed:
        here = all(crash.get(name) in (None, at) for name, at in (("point", point), ("batch", batch), ("lane", lane)))
        if here and not os.path.exists(crash["once"]) and _victims(crash, driver_pids):
            return crash
    return None


def _victims(crash: dict[str, Any], driver_pids: tuple[int, ...]) -> list[int]:
    """The processes to kill, this one last."""
    kill = crash["kill"]
    return [
        *(driver_pids if kill in ("driver", "both", "zombie") else ()),
        *([os.getpid()] if kill in ("worker", "both") else ()),
    ]


def _reach(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> None:
    crash = _due(point, batch, lane, driver_pids)
    if crash is None:
        return
    try:
        marker = os.open(crash["once"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    os.write(marker, json.dumps({"point": point, "batch": batch, "lane": lane, "pid": os.getpid()}).encode())
    os.fsync(marker)
    for pid in _victims(crash, driver_pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if crash["kill"] == "zombie":
        _stand_still(f"{crash['once']}.wake")


def _stand_still(wake: str) -> None:
    """Wait as a paused process would. SIGSTOP cannot be used: the kernel wakes and ends orphans that are stopped."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while not os.path.exists(wake):
        time.sleep(0.05)


def refuse_unusable() -> None:
    """Raise ConfigError if the variable is not valid. A run calls this at its start."""
    if _unusable is not None:
        raise ConfigError(_unusable)


_armed: list[dict[str, Any]] = []
_unusable: str | None = None
try:
    _armed = armed_crashes(os.environ.get(ENVIRONMENT, ""))
except ConfigError as e:
    _unusable = str(e)
#: The armed points, and the function that the protocol calls at each point.
armed_points: frozenset[str] = frozenset(crash["point"] for crash in _armed)
reach: Reach = _refuse if _unusable is not None else _reach if _armed else _never
