"""Crash points: named places in the protocol where a test or a fire drill lets a process die with SIGKILL.

Armed by the environment variable ``CKPT_CRASH``, a JSON document: ``{"point": ..., "kill": "driver" | "worker" |
"both", "once": <path>}`` with optional ``batch`` and ``lane``. The file ``once`` makes it happen a single time: it is
created by the process about to die, so its presence afterwards proves that the fault hit. Not armed, a point is an
empty function.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
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

VICTIMS = ("driver", "worker", "both")

Reach = Callable[..., None]


def _never(_point: str, **_where: Any) -> None:
    """Not armed."""


def _armed(order: dict[str, Any]) -> Reach:
    def reach(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> None:
        if order["point"] != point:
            return
        if any(order.get(name) is not None and order[name] != at for name, at in (("batch", batch), ("lane", lane))):
            return
        victims = [*driver_pids] if order["kill"] in ("driver", "both") else []
        if order["kill"] in ("worker", "both"):
            victims.append(os.getpid())
        if not victims:
            return  # nobody would die here: no proof either
        try:
            marker = os.open(order["once"], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return
        os.write(marker, json.dumps({"point": point, "batch": batch, "lane": lane, "pid": os.getpid()}).encode())
        os.fsync(marker)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    return reach


def _from_environment() -> tuple[str | None, Reach]:
    text = os.environ.get(ENVIRONMENT)
    if not text:
        return None, _never
    order = json.loads(text)
    if order["point"] not in POINTS:
        raise ValueError(f"{ENVIRONMENT} names the crash point {order['point']!r}; there are {', '.join(POINTS)}")
    if order.get("kill") not in VICTIMS or not order.get("once"):
        raise ValueError(f"{ENVIRONMENT} needs `kill`, one of {', '.join(VICTIMS)}, and `once`, the path of a file")
    return order["point"], _armed(order)


#: The armed point, or None; and the function that the protocol calls at each point.
armed_point, reach = _from_environment()
