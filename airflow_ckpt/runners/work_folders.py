"""The folders of runs on this machine: when a new one is used, old ones are deleted, and never one whose driver may live."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import time
from collections import defaultdict
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


def note_host(folder: Path) -> None:
    """Say where the processes are that will be named in this folder: others may see it too."""
    (folder / HOST).write_text(json.dumps({"host": socket.gethostname(), "boot": boot_id()}))


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
    note, host = _read(folder / "driver.json"), _read(folder / HOST)
    if not note:
        return time.time() - (folder / "stream.json").stat().st_mtime > SUBMIT_SECONDS
    if not host or host.get("host") != socket.gethostname():
        return False
    if host.get("boot") != boot_id():
        # The same start of the machine, seen from another container: its processes cannot be seen from here.
        return str(host.get("boot")).split()[:1] != boot_id().split()[:1]
    known = ((note.get("pid"), note.get("started")), (note.get("child"), note.get("child_started")))
    return not any(pid and process_started(int(pid)) == started for pid, started in known)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
