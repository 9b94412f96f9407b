"""Starts processes that continue after the command that started them, and ends them together with their descendants."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.process_id import ProcessId, find_running, may_lead_a_session, reap, runs, session_of
from ckpt_stream.protocol.deadline import Deadline


def start_detached(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> ProcessId:
    """Start a process in a new session, so that it survives this process; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    # Only the owner may read the log: a server may print a password.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise StackError(f"cannot start {argv[0]}: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    process = ProcessId.of(child.pid)
    # From here on the process is identified by its ProcessId. Without this line, Popen would warn that it is still running.
    child.returncode = 0
    return process


def stop_tree(process: ProcessId, timeout: float = 20.0) -> None:
    """End a process, its descendants and all others in its session; kill those that still run after `timeout` seconds."""
    family = _family(process)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(signal.SIGTERM)
            # A frozen process receives the signal only when it continues.
            member.send_signal(signal.SIGCONT)
    if _wait_until_gone(process, family, timeout):
        return
    family = _merge(family, _family(process))
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    if not _wait_until_gone(process, family, timeout=10.0):
        pids = ", ".join(str(member.pid) for member in family if runs(member))
        raise StackError(
            f"processes {pids} survive SIGKILL (stuck in the kernel?): look at them with `ps -o stat,wchan`"
        )


def _family(process: ProcessId) -> list[psutil.Process]:
    """The process, its descendants and its session. The session also finds orphans, whose parent has ended."""
    if not may_lead_a_session(process):
        return []
    leader = find_running(process)
    family: list[psutil.Process] = []
    if leader is not None:
        family = [leader]
        with suppress(psutil.NoSuchProcess):
            family += leader.children(recursive=True)
    if process.pid != os.getsid(0):
        family = _merge(family, [member for member in psutil.process_iter() if session_of(member) == process.pid])
    return [member for member in family if member.pid != os.getpid()]


def _merge(first: list[psutil.Process], second: list[psutil.Process]) -> list[psutil.Process]:
    return [*first, *(process for process in second if process not in first)]


def _wait_until_gone(process: ProcessId, family: list[psutil.Process], timeout: float) -> bool:
    """Whether all these processes, and all processes that they start meanwhile, end in time."""

    def are_gone() -> bool:
        gone = not any(runs(member) for member in family) and not any(runs(late) for late in _family(process))
        for member in family:
            reap(member.pid)
        return gone

    return bool(Deadline.after(timeout).wait_for(are_gone))
