"""Runs one driver, detached from whoever started it, and keeps its exit status in a file.

Started as a script, with nothing but the standard library: it must outlive Airflow's task, its worker, and the package's
own next version. Usage: ``launcher.py --ckpt-token=TOKEN FOLDER SECRET_FILE... -- COMMAND...``
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

#: How long a driver that was asked to end may take; less than Airflow gives a task that it kills.
GRACE_SECONDS = 4.0
LOOK_SECONDS = 0.25
#: A driver's log, and as much again of what came before: days of batches, or the whole of a failure.
LOG_BYTES = 32 * 1024 * 1024


def write(path: Path, value: dict[str, object]) -> None:
    """Replace the file in one step: a reader sees all of it or none."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(value))
    new.replace(path)


def bound(log: Path, size: int) -> None:
    """Move a log aside that has grown larger than this, replacing what was moved aside before.

    The driver keeps it open, so its text is copied and it is cut to nothing; what it writes goes to its end, wherever that is.
    """
    with contextlib.suppress(OSError):
        if log.stat().st_size <= size:
            return
        before = log.with_name(log.name + ".1")
        with log.open("rb") as text, open(before, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as copy:
            shutil.copyfileobj(text, copy)
        os.truncate(log, 0)


def start_ticks(pid: int) -> float | None:
    try:
        return float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def main(argv: list[str]) -> int:
    """Start the command, note who runs, wait, and note how it ended."""
    token, folder = argv[1].partition("=")[2], Path(argv[2])
    split = argv.index("--")
    secret_files, command = argv[3:split], argv[split + 1 :]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    me: dict[str, object] = {"token": token, "pid": os.getpid(), "started": start_ticks(os.getpid())}
    # Before there is a child: a launcher that is ended now must not leave one behind that nobody knows.
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    # Before the command runs: whoever looks for the token from now on finds it.
    write(folder / "driver.json", me)
    try:
        child = subprocess.Popen(command, process_group=0, stdin=subprocess.DEVNULL)
    except OSError as e:
        print(f"cannot start {command[0]}: {e}", file=sys.stderr, flush=True)
        return _ended(folder, secret_files, 127)

    write(folder / "driver.json", {**me, "child": child.pid, "child_started": start_ticks(child.pid)})
    while child.poll() is None:
        time.sleep(LOOK_SECONDS)
        bound(folder / "driver.log", LOG_BYTES)
        if asked:
            _end(child)
    return _ended(folder, secret_files, child.returncode)


def _ended(folder: Path, secret_files: list[str], code: int) -> int:
    for name in secret_files:
        Path(name).unlink(missing_ok=True)
    write(folder / "exit.json", {"code": code, "time": time.time()})
    return code


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ask the driver to end, and do not wait for ever."""
    _signal_group(child.pid, signal.SIGTERM)
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
