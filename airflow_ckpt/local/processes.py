"""Processes that outlive the command that started them: start, recognise, signal and end them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

import psutil

from airflow_ckpt.exceptions import StackError
from ckpt_stream.lease import boot_id, state_and_start

T = TypeVar("T")

# Long enough to cost nothing, short enough that nobody notices the wait.
POLL_INTERVAL_S = 0.05
# Below the range (32768 and up) from which the system lends ports to outgoing connections: a port chosen here is still
# ours after a broker was killed and comes back.
PORTS_FOR_SERVERS = range(20_000, 32_000)


@dataclass(frozen=True)
class ProcessId:
    """One process for good: the system reuses a pid, but not a pid together with its start."""

    pid: int
    boot: str
    # In clock ticks since the boot, where the system tells them.
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """The process that has this pid now; NoSuchProcess if none has."""
        if not psutil.LINUX:
            return cls(pid, boot_id(), psutil.Process(pid).create_time())
        found = state_and_start(pid)
        if found is None:
            raise psutil.NoSuchProcess(pid)
        return cls(pid, boot_id(), found[1])

    def to_dict(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> ProcessId:
        """Back from JSON."""
        return cls(pid=int(kept["pid"]), boot=str(kept["boot"]), started=float(kept["started"]))


def start_detached(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> ProcessId:
    """Start a process in a session of its own, so that it survives us; what it prints is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    # Only for the owner: a server may print a password it was given.
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
    # We follow it by ProcessId from here on; without this, Popen would warn that it was left running.
    child.returncode = 0
    return process


def is_alive(process: ProcessId) -> bool:
    """Whether this very process still runs. A zombie, or another process with the same pid, does not count."""
    _reap(process.pid)
    return _find(process) is not None


def may_lead_a_session(process: ProcessId) -> bool:
    """Whether the session named after this process, and not another one that got its number, can be there.

    No pid is given out again while a session is named after it: a stranger at this pid proves the session empty.
    """
    try:
        return ProcessId.of(process.pid) == process
    except psutil.NoSuchProcess:
        # Its first process is gone, others may live on.
        return process.boot == boot_id()


def send_signal(process: ProcessId, sig: signal.Signals) -> None:
    """Send a signal to this very process, never to a stranger that got its pid."""
    found = _find(process)
    if found is None:
        raise StackError(f"process {process.pid} is gone, so {sig.name} cannot be sent to it")
    found.send_signal(sig)


def stop_tree(process: ProcessId, timeout: float = 20.0) -> None:
    """End a process, its descendants and everything else in its session; kill what is left after `timeout` seconds."""
    family = _family(process)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(signal.SIGTERM)
            # A frozen process would keep the signal waiting for ever.
            member.send_signal(signal.SIGCONT)
    if _wait_until_gone(process, family, timeout):
        return
    family = _merge(family, _family(process))
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    if not _wait_until_gone(process, family, timeout=10.0):
        pids = ", ".join(str(member.pid) for member in family if _runs(member))
        raise StackError(
            f"processes {pids} survive SIGKILL (stuck in the kernel?): look at them with `ps -o stat,wchan`"
        )


def free_port(preferred: int | None = None) -> int:
    """A port that can be bound on 127.0.0.1: the preferred one if it is free, else any."""
    if preferred is not None and can_bind(preferred):
        return preferred
    for candidate in SystemRandom().sample(PORTS_FOR_SERVERS, k=100):
        if can_bind(candidate):
            return candidate
    raise StackError(f"found no free port between {PORTS_FOR_SERVERS.start} and {PORTS_FOR_SERVERS.stop} on 127.0.0.1")


def can_bind(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        # As servers do: connections that a former server left behind in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(fact: Callable[[], T | None], *, deadline_s: float, what: str) -> T:
    """Ask for a fact until it is there (neither None nor False), and return it."""
    end = time.monotonic() + deadline_s
    while True:
        found = fact()
        if found is not None and found is not False:
            return found
        if time.monotonic() >= end:
            raise StackError(f"timed out after {deadline_s:g} s of waiting for {what}")
        time.sleep(POLL_INTERVAL_S)


def _find(process: ProcessId) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(process.pid)
        if ProcessId.of(process.pid) == process and _runs(found):
            return found
    return None


def _runs(process: psutil.Process) -> bool:
    """Whether it still runs. One that looks like a zombie but has threads is still dying, and holds its ports."""
    try:
        if not process.is_running():
            return False
        is_zombie = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not is_zombie or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def _family(process: ProcessId) -> list[psutil.Process]:
    """The process, its descendants and its session. The session also finds orphans, whose parent is gone already."""
    if not may_lead_a_session(process):
        return []
    leader = _find(process)
    family: list[psutil.Process] = []
    if leader is not None:
        family = [leader]
        with suppress(psutil.NoSuchProcess):
            family += leader.children(recursive=True)
    if process.pid != os.getsid(0):
        family = _merge(family, [member for member in psutil.process_iter() if _session_of(member) == process.pid])
    return [member for member in family if member.pid != os.getpid()]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _merge(first: list[psutil.Process], second: list[psutil.Process]) -> list[psutil.Process]:
    return [*first, *(process for process in second if process not in first)]


def _wait_until_gone(process: ProcessId, family: list[psutil.Process], timeout: float) -> bool:
    """Whether all of them, and all that they started meanwhile, end in time."""
    end = time.monotonic() + timeout
    while True:
        is_over = not any(_runs(member) for member in family) and not any(_runs(late) for late in _family(process))
        for member in family:
            _reap(member.pid)
        if is_over or time.monotonic() >= end:
            return is_over
        time.sleep(POLL_INTERVAL_S)


def _reap(pid: int) -> None:
    """Collect our own ended child, which would otherwise stay as a zombie."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
