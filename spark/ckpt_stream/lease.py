"""One driver per checkpoint: a run looks for another live one before it touches anything.

The heartbeat in the run record is the sign of life. On this machine the process itself is looked at, so a killed driver
is known to be dead at once; a driver elsewhere is dead when its heartbeat has not moved for a while. Should two drivers
slip through all the same, the lanes' fences keep the sink right.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from ckpt_stream.errors import DriverAlive
from ckpt_stream.files import ReadableFiles
from ckpt_stream.run_record import LIVE, RUNNING, RunRecord, RunRecordError, path_of

#: A heartbeat may be late by a long pause of the driver's machine; this many intervals without one is death.
MISSED_HEARTBEATS = 6


def state_and_start(pid: int) -> tuple[str, float] | None:
    """A process's state as one letter, and its start in clock ticks since boot: with the pid that names it for good.

    No time of day: that would be computed from the clock at every look, and the clock is corrected now and then.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # Only the last parenthesis ends the name, which may hold some itself.
    fields = stat.rpartition(")")[2].split()
    return fields[0], float(fields[19])


def process_started(pid: int) -> float | None:
    """When a living process of this machine started; a zombie is dead."""
    found = state_and_start(pid)
    return None if found is None or found[0] == "Z" else found[1]


def this_driver(jvm_pid: int) -> dict[str, object]:
    """Who this driver is."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot": boot_id(),
        "pid": pid,
        "started": process_started(pid),
        "jvm_pid": jvm_pid,
    }


def boot_id() -> str:
    """Tells two machines of the same name, two lives of one machine, and two containers with their own pids, apart."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def is_alive_here(record: RunRecord) -> bool | None:
    """Whether a run's process lives on this machine; None when it cannot be seen from here."""
    driver, boot = record.driver, boot_id()
    if driver.get("host") != socket.gethostname() or driver.get("boot") != boot or not boot:
        return None
    if driver.get("pid") is None or driver.get("started") is None:
        return None
    return bool(process_started(int(driver["pid"])) == driver["started"])


def read_other(files: ReadableFiles, run: str, heartbeat_seconds: float) -> RunRecord:
    """The run record of the run with this name.

    One that cannot be read is taken for a living run whose heartbeat is the file itself: a driver that lives replaces it.
    """
    text: str | None = None
    try:
        text = files.read(path_of(run))
        if text is not None:
            return RunRecord.from_json(text)
    except (RunRecordError, UnicodeDecodeError) as e:
        text = f"{text} {e}"
    return RunRecord(run, "", state=RUNNING, heartbeat=str(text), heartbeat_seconds=heartbeat_seconds)


def refuse_if_alive(
    mine: RunRecord,
    read_others: Callable[[], Iterable[RunRecord]],
    *,
    came_first: Collection[str] = (),
    silent: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """Raise DriverAlive if another run on this checkpoint lives; of two that start at once, the younger gives way.

    A run's name is the time of its machine's clock, which may be wrong: it decides only between runs that start at once. The
    runs that had a record before this one (`came_first`) and those that are RUNNING already never give way.

    Returns the last heartbeats of those that are dead; another look need not wait for them again (`silent`).
    """
    known = dict(silent or {})
    first_seen = dict(known)
    waited = 0.0
    while True:
        suspects = [
            r
            for r in read_others()
            if r.state in LIVE and (r.run in came_first or r.run < mine.run or r.state == RUNNING)
        ]
        unsure: list[RunRecord] = []
        for record in suspects:
            alive = is_alive_here(record)
            moved = first_seen.setdefault(record.run, record.heartbeat) != record.heartbeat
            if alive or (alive is None and moved):
                raise _refusal(record)
            if alive is None and record.run not in known and waited < record.heartbeat_seconds * MISSED_HEARTBEATS:
                unsure.append(record)
        if not unsure:
            return first_seen
        if waited == 0.0:
            names = ", ".join(f"{r.run} on {r.driver.get('host')}" for r in unsure)
            say(f"waiting for a sign of life of {names}")
        sleep(1.0)
        waited += 1.0


def _refusal(record: RunRecord) -> DriverAlive:
    driver, checkpoint = record.driver, record.settings.get("checkpoint", "<checkpoint>")
    return DriverAlive(
        f"Run {record.run} of this stream is alive on {driver.get('host')} (process {driver.get('pid')}, last heartbeat "
        f"{record.heartbeat}).",
        "Two drivers on one checkpoint fence each other for ever, and on some storage they damage the checkpoint.",
        f"let it run; or stop it first with `airflow-ckpt stop {checkpoint}`.",
    )
