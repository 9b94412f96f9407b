"""Identifies one process, although the system reuses its pid later; asks whether it runs, and sends it signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from airflow_ckpt.exceptions import StackError
from ckpt_stream.machine.process_identity import boot_id, state_and_start


@dataclass(frozen=True)
class ProcessId:
    """The identity of one process: the system reuses a pid, but not a pid together with its start."""

    pid: int
    boot: str
    # On Linux in clock ticks since the boot, elsewhere in seconds since 1970.
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process with this pid; raises NoSuchProcess if there is none."""
        if not psutil.LINUX:
            return cls(pid, boot_id(), psutil.Process(pid).create_time())
        found = state_and_start(pid)
        if found is None:
            raise psutil.NoSuchProcess(pid)
        return cls(pid, boot_id(), found[1])

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON stores them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> ProcessId:
        """The process that was stored as JSON."""
        return cls(pid=int(stored["pid"]), boot=str(stored["boot"]), started=float(stored["started"]))


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process is still running. A zombie, or another process with the same pid, does not count."""
    reap(process.pid)
    return find_running(process) is not None


def may_lead_a_session(process: ProcessId) -> bool:
    """Whether the session that this process started may still have members.

    The system does not reuse a pid while a session has it as its id: so if another process has this pid, the session is empty.
    """
    try:
        return ProcessId.of(process.pid) == process
    except psutil.NoSuchProcess:
        # The first process of the session has ended, but others may still be running.
        return process.boot == boot_id()


def send_signal(process: ProcessId, sig: signal.Signals) -> None:
    """Send a signal to exactly this process, never to another process with the same pid."""
    found = find_running(process)
    if found is None:
        raise StackError(f"process {process.pid} is gone, so {sig.name} cannot be sent to it")
    found.send_signal(sig)


def find_running(process: ProcessId) -> psutil.Process | None:
    """The running process for psutil; None if it has ended."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(process.pid)
        if ProcessId.of(process.pid) == process and runs(found):
            return found
    return None


def runs(process: psutil.Process) -> bool:
    """Whether a process is still running. A zombie with threads is still ending, and has its ports open, so it counts."""
    try:
        if not process.is_running():
            return False
        is_zombie = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not is_zombie or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def session_of(process: psutil.Process) -> int | None:
    """The id of the session that a process belongs to; None if the process has ended."""
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def reap(pid: int) -> None:
    """Collect an ended child of this process, which would otherwise stay as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
