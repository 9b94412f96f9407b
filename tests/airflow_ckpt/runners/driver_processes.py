"""Drivers as processes of this machine, and what their folders say about them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

from airflow_ckpt.runners import work_folders
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import DriverState, Handle
from ckpt_stream.machine.process_identity import boot_id
from tests.support.waiting import wait_for

Start = Callable[..., Handle]
SLEEP = ("sleep", "60")


def end_of(runner: ProcessRunner, handle: Handle) -> DriverState:
    """How the driver was when it did not live any more."""
    wait_for(lambda: not runner.look(handle).live, "the driver's end", 10)
    return runner.look(handle)


def child_of(handle: Handle) -> int:
    """The driver's own process; its launcher is the handle's."""
    note = Path(str(handle.details["folder"])) / "driver.json"
    return int(wait_for(lambda: json.loads(note.read_text()).get("child"), "the driver", 10))


def noted_elsewhere(handle: Handle, **place: str) -> None:
    """The driver's folder says that it runs in another place."""
    note = Path(str(handle.details["folder"])) / work_folders.HOST
    note.write_text(json.dumps({"host": socket.gethostname(), "boot": boot_id(), **place}))
