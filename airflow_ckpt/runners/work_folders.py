"""The folders of runs on this machine. Each start deletes old folders, except those whose driver may still run."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_ckpt.runners.launcher import DRIVER_NOTE, EXIT_NOTE
from ckpt_stream.machine.process_identity import boot_id, process_started

log = logging.getLogger(__name__)

#: How many folders are kept for each stream, and for the jobs beside it; each holds up to 64 MB of a driver's log.
#: `airflow-ckpt resume` starts the newest launch again.
KEEP_FOLDERS = 10
#: A folder without driver.json belongs to a spark-submit, which ends within minutes.
SUBMIT_SECONDS = 3600.0
HOST = "host.json"


def note_host(folder: Path) -> None:
    """Write down the machine on which the processes of this folder run, because other machines may share the folder."""
    (folder / HOST).write_text(json.dumps({"host": socket.gethostname(), "boot": boot_id()}))


def is_other_container(boot: object) -> bool:
    """Whether a process was started since this machine's boot, but in a container whose processes are not visible here."""
    return boot != boot_id() and str(boot).split()[:1] == boot_id().split()[:1]


def running_processes(note: Mapping[str, Any]) -> dict[str, int]:
    """The running processes of launcher and driver, from the launcher's file; only on the machine where it was written."""
    known = {"launcher": ("pid", "started"), "driver": ("child", "child_started")}
    noted = {who: (int(note.get(pid) or 0), note.get(started)) for who, (pid, started) in known.items()}
    return {
        who: pid
        for who, (pid, started) in noted.items()
        if pid and started is not None and process_started(pid) == started
    }


def prune(root: Path, keep: int = KEEP_FOLDERS) -> None:
    """Delete the oldest folders of each stream. A folder that cannot be read is kept."""
    folders: dict[tuple[str, bool], list[tuple[float, Path]]] = defaultdict(list)
    for document in root.glob("*/stream.json"):
        try:
            folders[_owner(document)].append((document.stat().st_mtime, document.parent))
        except (OSError, ValueError) as e:
            log.warning("keeping the folder %s, which cannot be read: %s", document.parent, e)
    for known in folders.values():
        for _, folder in sorted(known)[:-keep]:
            if _is_unused(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _owner(document: Path) -> tuple[str, bool]:
    """The stream of a folder, and whether the folder is of a job beside the stream."""
    found = json.loads(document.read_text())
    return str(found.get("checkpoint") or found.get("name")), "recompute" in found or "targets" in found


def _is_unused(folder: Path) -> bool:
    """Whether it is certain that no process uses the folder any more."""
    if (folder / EXIT_NOTE).exists():
        return True
    note, host = _read(folder / DRIVER_NOTE), _read(folder / HOST)
    if not note:
        return time.time() - (folder / "stream.json").stat().st_mtime > SUBMIT_SECONDS
    if not host or host.get("host") != socket.gethostname():
        return False
    if host.get("boot") != boot_id():
        return not is_other_container(host.get("boot"))
    return not running_processes(note)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
