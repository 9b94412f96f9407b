"""Crash points: named places in the protocol where a test or a fire drill lets a process die with SIGKILL.

Armed by the environment variable ``CKPT_CRASH``, a JSON document: ``{"point": ..., "kill": "driver" | "worker" |
"both" | "zombie", "once": <path>}`` with optional ``batch`` and ``lane``. The file ``once`` makes it happen a single time: it is
created by the process about to die, so its presence afterwards proves that the fault hit. Not armed, a point is an
empty function.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

ENVIRONMENT = "CKPT_CRASH"

OFFSETS_LOGGED = "offsets_logged"
AFTER_INIT = "after_init"
AFTER_LEDGER_READ = "after_ledger_read"
MID_PRODUCE = "mid_produce"
AFTER_FLUSH = "after_flush"
COMMIT_SENT = "commit_sent"
AFTER_COMMIT = "after_commit"
BETWEEN_LANES = "between_lanes"
AFTER_LAST_LANE = "after_last_lane"
AFTER_COMMIT_LOG = "after_commit_log"

#: In the order in which a batch passes them. The first and the last two are on the driver, the others in a lane.
POINTS = (
    OFFSETS_LOGGED,
    AFTER_INIT,
    AFTER_LEDGER_READ,
    MID_PRODUCE,
    AFTER_FLUSH,
    COMMIT_SENT,
    AFTER_COMMIT,
    BETWEEN_LANES,
    AFTER_LAST_LANE,
    AFTER_COMMIT_LOG,
)
DRIVER_POINTS = (OFFSETS_LOGGED, AFTER_LAST_LANE, AFTER_COMMIT_LOG)

#: A zombie is a worker that stands still when its driver dies, and goes on when the file `<once>.wake` appears.
VICTIMS = ("driver", "worker", "both", "zombie")

Reach = Callable[..., None]


def _never(_point: str, **_where: Any) -> None:
    """Not armed."""


def is_due(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> bool:
    """Whether this very place is armed, has not been hit yet, and there is somebody to die."""
    if _order is None or _order["point"] != point or os.path.exists(_order["once"]) or not _victims(driver_pids):
        return False
    return all(_order.get(name) in (None, at) for name, at in (("batch", batch), ("lane", lane)))


def _victims(driver_pids: tuple[int, ...]) -> list[int]:
    """Whom to kill, this process last."""
    kill = _order["kill"] if _order else ""
    return [
        *(driver_pids if kill in ("driver", "both", "zombie") else ()),
        *([os.getpid()] if kill in ("worker", "both") else ()),
    ]


def _reach(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> None:
    if _order is None or not is_due(point, batch=batch, lane=lane, driver_pids=driver_pids):
        return
    try:
        marker = os.open(_order["once"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    os.write(marker, json.dumps({"point": point, "batch": batch, "lane": lane, "pid": os.getpid()}).encode())
    os.fsync(marker)
    for pid in _victims(driver_pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if _order["kill"] == "zombie":
        _stand_still(f"{_order['once']}.wake")


def _stand_still(wake: str) -> None:
    """Wait as a paused process would. SIGSTOP does not do: the kernel wakes and ends orphans that are stopped."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while not os.path.exists(wake):
        time.sleep(0.05)


def _from_environment() -> dict[str, Any] | None:
    text = os.environ.get(ENVIRONMENT)
    if not text:
        return None
    order: dict[str, Any] = json.loads(text)
    if order["point"] not in POINTS:
        raise ValueError(f"{ENVIRONMENT} names the crash point {order['point']!r}; there are {', '.join(POINTS)}")
    if order.get("kill") not in VICTIMS or not order.get("once"):
        raise ValueError(f"{ENVIRONMENT} needs `kill`, one of {', '.join(VICTIMS)}, and `once`, the path of a file")
    return order


_order = _from_environment()
#: The armed point, or None; and the function that the protocol calls at each point.
armed_point: str | None = _order["point"] if _order else None
reach: Reach = _reach if _order else _never
