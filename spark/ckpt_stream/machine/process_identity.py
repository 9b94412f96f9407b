"""Identifies a process, also after its process id is used again: by machine, boot, process id and start."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ckpt_stream.protocol.run_files.run_record import RunRecord


def state_and_start(pid: int) -> tuple[str, float] | None:
    """A process's state as one letter, and its start in clock ticks since boot: pid and start together identify it.

    The start is no time of day, because that is computed from the clock, and the clock may be corrected between two reads.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the process ends at the last parenthesis; it may contain others.
    fields = stat.rpartition(")")[2].split()
    return fields[0], float(fields[19])


def process_started(pid: int) -> float | None:
    """When a process of this machine started; None if it has ended or is a zombie."""
    found = state_and_start(pid)
    return None if found is None or found[0] == "Z" else found[1]


def this_driver(jvm_pid: int) -> dict[str, object]:
    """This driver's machine and processes, for its run record."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot": boot_id(),
        "pid": pid,
        "started": process_started(pid),
        "jvm_pid": jvm_pid,
    }


def boot_id() -> str:
    """An id that differs between two machines of one name, two boots of a machine, and containers with separate process ids."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def is_alive_here(record: RunRecord) -> bool | None:
    """Whether a run's process is alive on this machine; None if it is on another machine, or unknown."""
    driver, boot = record.driver, boot_id()
    if driver.get("host") != socket.gethostname() or driver.get("boot") != boot or not boot:
        return None
    if driver.get("pid") is None or driver.get("started") is None:
        return None
    return bool(process_started(int(driver["pid"])) == driver["started"])
