"""Runs one driver, detached from the process that started it, and keeps its exit status in a file.

It is a script that imports only the standard library: it must continue when Airflow's task or worker ends, and when the package
is upgraded meanwhile. Usage: ``launcher.py --ckpt-token=TOKEN FOLDER SECRET_FILE... -- COMMAND...``
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: The launcher writes these files into a driver's folder: the processes of launcher and driver, the driver's end, and its log.
DRIVER_NOTE, EXIT_NOTE, DRIVER_LOG = "driver.json", "exit.json", "driver.log"
#: How long a driver may take to end after SIGTERM; less than Airflow gives a task that it kills.
GRACE_SECONDS = 4.0
LOOK_SECONDS = 0.25
#: The largest size of a driver's log, and of the older part of it: enough for days of batches, or for a whole failure.
LOG_BYTES = 32 * 1024 * 1024


def write(path: Path, value: dict[str, object]) -> None:
    """Replace the file in one step: a reader sees the old file or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value))
    new.replace(path)


def bound(log: Path, size: int) -> None:
    """Move a log that has grown too large to a second file, and replace the log that was moved there before.

    The driver keeps the file open, so its text is copied and the file is truncated; the driver always writes to its end.
    """
    with contextlib.suppress(OSError):
        if log.stat().st_size <= size:
            return
        before = log.with_name(log.name + ".1")
        with log.open("rb") as text, open(before, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as copy:
            shutil.copyfileobj(text, copy)
        os.truncate(log, 0)


def start_ticks(pid: int) -> float | None:
    """When a process started, as `process_identity.py` of `ckpt_stream` reads it: this script cannot import the package."""
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def main(argv: list[str]) -> int:
    """Start the command, write which processes run, wait, and write how the command ended."""
    token, folder = argv[1].partition("=")[2], Path(argv[2])
    split = argv.index("--")
    secret_files, command = argv[3:split], argv[split + 1 :]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    me: dict[str, object] = {"token": token, "pid": os.getpid(), "started": start_ticks(os.getpid())}
    # Before the command runs: a launcher that is ended at this moment must not leave an unknown driver behind.
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    # Also before the command runs: from now on the driver can be found by its token.
    write(folder / DRIVER_NOTE, me)
    try:
        child = subprocess.Popen(command, process_group=0, stdin=subprocess.DEVNULL)
    except OSError as e:
        print(f"cannot start {command[0]}: {e}", file=sys.stderr, flush=True)
        return _ended(folder, secret_files, 127)

    write(folder / DRIVER_NOTE, {**me, "child": child.pid, "child_started": start_ticks(child.pid)})
    while child.poll() is None:
        time.sleep(LOOK_SECONDS)
        bound(folder / DRIVER_LOG, LOG_BYTES)
        if asked:
            _end(child)
    return _ended(folder, secret_files, child.returncode)


def _ended(folder: Path, secret_files: list[str], code: int) -> int:
    for name in secret_files:
        Path(name).unlink(missing_ok=True)
    write(folder / EXIT_NOTE, {"code": code, "time": time.time()})
    return code


def _end(child: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the driver, and kill it if it does not end in time."""
    _signal_group(child.pid, signal.SIGTERM)
    # By hand, although `ckpt_stream` has a `Deadline`: this script imports the standard library only.
    deadline = time.monotonic() + GRACE_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
