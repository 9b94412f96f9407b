"""Crash points: named places in the protocol where a test or a fire drill lets a process die, and how that is armed.

The environment variable ``CKPT_CRASH`` arms crashes, as JSON: ``{"point": ..., "kill": "driver" | "worker" | "both" | "zombie",
"once": <path>}`` with optional ``batch`` and ``lane``, or a list of such. `machine/crashes.py` kills there.
"""

from __future__ import annotations

import json
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

#: A zombie is a worker that is paused when its driver dies, and continues when the file `<once>.wake` appears.
VICTIMS = ("driver", "worker", "both", "zombie")


def armed_crashes(text: str) -> list[dict[str, Any]]:
    """Parse the armed crashes in a text; raises ConfigError if it is not valid."""
    if not text.strip():
        return []
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise _no_crash(f"it is not JSON ({e})") from e
    crashes: list[dict[str, Any]] = document if isinstance(document, list) else [document]
    for crash in crashes:
        if not isinstance(crash, dict) or crash.get("point") not in POINTS:
            raise _no_crash(f"it needs `point`, one of {', '.join(POINTS)}, not {crash!r}")
        if crash.get("kill") not in VICTIMS or not crash.get("once") or not isinstance(crash["once"], str):
            raise _no_crash(f"it needs `kill`, one of {', '.join(VICTIMS)}, and `once`, the path of a file")
    return crashes


def _no_crash(why: str) -> ConfigError:
    example = json.dumps({"point": AFTER_FLUSH, "kill": "driver", "once": "/tmp/hit"})  # noqa: S108 - a text
    return ConfigError(f"{ENVIRONMENT} cannot be used: {why}. Unset it, or set it as in {ENVIRONMENT}='{example}'.")
