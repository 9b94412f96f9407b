"""Crash points: named places in the protocol where a test or a fire drill lets a process die with SIGKILL.

Armed by the environment variable ``CKPT_CRASH``, a JSON document: ``{"point": ..., "kill": "driver" | "worker" |
"both" | "zombie", "once": <path>}`` with optional ``batch`` and ``lane``, or a list of such. The file ``once`` makes it
happen a single time: it is created by the process about to die, so its presence afterwards proves that the fault hit. Not
armed, a point is an empty function. With a text that is no order this module can still be imported: the run that begins with
it is refused, and so is a task that comes by a point.

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


def _refuse(_point: str, **_where: Any) -> None:
    """Armed with what is no order: a drill without its fault would prove nothing."""
    refuse_unusable()


def is_due(point: str, *, batch: int, lane: int | None = None, driver_pids: tuple[int, ...] = ()) -> bool:
    """Whether this very place is armed, has not been hit yet, and there is a process to kill."""
    return _due(point, batch, lane, driver_pids) is not None


def _due(point: str, batch: int, lane: int | None, driver_pids: tuple[int, ...]) -> dict[str, Any] | None:
    for order in _orders:
        here = all(order.get(name) in (None, at) for name, at in (("point", point), ("batch", batch), ("lane", lane)))
        if here and not os.path.exists(order["once"]) and _victims(order, driver_pids):
            return order
    return None


def _victims(order: dict[str, Any], driver_pids: tuple[int, ...]) -> list[int]:
    """The processes to kill, this one last."""
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
    """The orders that a text holds; ConfigError if it holds anything else."""
    if not text.strip():
        return []
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise _no_order(f"it is not JSON ({e})") from e
    orders: list[dict[str, Any]] = document if isinstance(document, list) else [document]
    for order in orders:
        if not isinstance(order, dict) or order.get("point") not in POINTS:
            raise _no_order(f"it needs `point`, one of {', '.join(POINTS)}, not {order!r}")
        if order.get("kill") not in VICTIMS or not order.get("once") or not isinstance(order["once"], str):
            raise _no_order(f"it needs `kill`, one of {', '.join(VICTIMS)}, and `once`, the path of a file")
    return orders


def _no_order(why: str) -> ConfigError:
    example = json.dumps({"point": AFTER_FLUSH, "kill": "driver", "once": "/tmp/hit"})  # noqa: S108 - a text
    return ConfigError(f"{ENVIRONMENT} is no crash order: {why}. Unset it, or set it as in {ENVIRONMENT}='{example}'.")


def refuse_unusable() -> None:
    """Raise ConfigError if this process is armed with what is no order. A run calls it at its start."""
    if _unusable is not None:
        raise ConfigError(_unusable)


_orders: list[dict[str, Any]] = []
_unusable: str | None = None
try:
    _orders = orders_in(os.environ.get(ENVIRONMENT, ""))
except ConfigError as e:
    _unusable = str(e)
#: The armed points; and the function that the protocol calls at each point.
armed_points: frozenset[str] = frozenset(order["point"] for order in _orders)
reach: Reach = _refuse if _unusable is not None else _reach if _orders else _never
