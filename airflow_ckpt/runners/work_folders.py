"""The folders of runs on this machine: when a new one is used, old ones are deleted, and never one whose driver may live."""

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

from ckpt_stream.lease import boot_id, process_started

log = logging.getLogger(__name__)

#: Of each stream, and of the jobs beside it: what the last restarts had to say, with up to 64 MB of a driver's log each. The
#: newest one is what `airflow-ckpt resume` starts again.
KEEP_FOLDERS = 10
#: A folder without a driver's note is one of a spark-submit, which ends within minutes.
SUBMIT_SECONDS = 3600.0
HOST = "host.json"
#: What the launcher notes of itself and of the driver.
NOTE = "driver.json"


def note_host(folder: Path) -> None:
    """Say where the processes are that will be named in this folder: others may see it too."""
    (folder / HOST).write_text(json.dumps({"host": socket.gethostname(), "boot": boot_id()}))


def is_other_container(boot: object) -> bool:
    """Whether a process ran in this life of this machine, in a container whose processes cannot be seen from here."""
    return boot != boot_id() and str(boot).split()[:1] == boot_id().split()[:1]


def living(note: Mapping[str, Any]) -> dict[str, int]:
    """The processes of launcher and driver, as far as they live; by the launcher's note, on the machine where it was made."""
    known = {"launcher": ("pid", "started"), "driver": ("child", "child_started")}
    noted = {who: (int(note.get(pid) or 0), note.get(started)) for who, (pid, started) in known.items()}
    return {
        who: pid
        for who, (pid, started) in noted.items()
        if pid and started is not None and process_started(pid) == started
    }


def prune(root: Path, keep: int = KEEP_FOLDERS) -> None:
    """Delete the oldest folders of each stream. What cannot be looked at is left alone."""
    folders: dict[tuple[str, bool], list[tuple[float, Path]]] = defaultdict(list)
    for document in root.glob("*/stream.json"):
        try:
            folders[_owner(document)].append((document.stat().st_mtime, document.parent))
        except (OSError, ValueError) as e:
            log.warning("the folder %s is left alone: %s", document.parent, e)
    for known in folders.values():
        for _, folder in sorted(known)[:-keep]:
            if _is_over(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _owner(document: Path) -> tuple[str, bool]:
    """Which stream a folder belongs to, and whether it is of a job beside it."""
    found = json.loads(document.read_text())
    return str(found.get("checkpoint") or found.get("name")), "recompute" in found or "targets" in found


def _is_over(folder: Path) -> bool:
    """Whether no process uses the folder any more, for certain."""
    if (folder / "exit.json").exists():
        return True
    note, host = _read(folder / NOTE), _read(folder / HOST)
    if not note:
        return time.time() - (folder / "stream.json").stat().st_mtime > SUBMIT_SECONDS
    if not host or host.get("host") != socket.gethostname():
        return False
    if host.get("boot") != boot_id():
        return not is_other_container(host.get("boot"))
    return not living(note)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
