"""Crash points: named places in the protocol where a test or a fire drill lets a process die with SIGKILL.

Armed by the environment variable ``CKPT_CRASH``, a JSON document: ``{"point": ..., "kill": "driver" | "worker" |
"both" | "zombie", "once": <path>}`` with optional ``batch`` and ``lane``, or a list of such. The file ``once`` makes it
happen a single time: it is created by the process about to die, so its presence afterwards proves that the fault hit. Not
armed, a point is an empty function.

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
    return _due(point, batch, lane, driver_pids) is not None


def _due(point: str, batch: int, lane: int | None, driver_pids: tuple[int, ...]) -> dict[str, Any] | None:
    for order in _orders:
        here = all(order.get(name) in (None, at) for name, at in (("point", point), ("batch", batch), ("lane", lane)))
        if here and not os.path.exists(order["once"]) and _victims(order, driver_pids):
            return order
    return None


def _victims(order: dict[str, Any], driver_pids: tuple[int, ...]) -> list[int]:
    """Whom to kill, this process last."""
    kill = order["kill"]
    return [
        *(driver_pids if kill in ("driver", "both", "zombie") else ()),
        *([os.getpid()] if kill in ("worker", "both") else ()),
    ]


def _reach(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> None:
    order = _due(point, batch, lane, driver_pids)
    if order is None:
        return
    try:
        marker = os.open(order["once"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    os.write(marker, json.dumps({"point": point, "batch": batch, "lane": lane, "pid": os.getpid()}).encode())
    os.fsync(marker)
    for pid in _victims(order, driver_pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if order["kill"] == "zombie":
        _stand_still(f"{order['once']}.wake")


def _stand_still(wake: str) -> None:
    """Wait as a paused process would. SIGSTOP does not do: the kernel wakes and ends orphans that are stopped."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while not os.path.exists(wake):
        time.sleep(0.05)


def orders_in(text: str) -> list[dict[str, Any]]:
    """The orders that a text holds; ValueError if it is none of theirs."""
    if not text.strip():
        return []
    document = json.loads(text)
    orders: list[dict[str, Any]] = document if isinstance(document, list) else [document]
    for order in orders:
        if not isinstance(order, dict) or order.get("point") not in POINTS:
            raise ValueError(f"{ENVIRONMENT} needs `point`, one of {', '.join(POINTS)}, not {order!r}")
        if order.get("kill") not in VICTIMS or not order.get("once"):
            raise ValueError(f"{ENVIRONMENT} needs `kill`, one of {', '.join(VICTIMS)}, and `once`, the path of a file")
    return orders


_orders = orders_in(os.environ.get(ENVIRONMENT, ""))
#: The armed points; and the function that the protocol calls at each point.
armed_points: frozenset[str] = frozenset(order["point"] for order in _orders)
reach: Reach = _reach if _orders else _never
