"""The restart history beside the checkpoint: what a strategy's budget is counted from.

A submit begins a new budget, a restart uses it up. Neither clearing a task nor restarting Airflow changes the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.streams.restart import Restart
from ckpt_stream import run_record as records
from ckpt_stream.files import ReadableFiles
from ckpt_stream.run_record import RESTART, SUBMIT

#: Somebody found the stream running: neither a new budget nor a use of it.
ATTACH = "attach"


def read_history(files: ReadableFiles) -> list[dict[str, Any]]:
    return records.entries(files.read(records.RESTARTS), "restart history")


def note(files: FsspecFiles, kind: str, token: str, **about: Any) -> None:
    """Add a submit or a restart, before the driver is started: an attempt that fails at once counts too."""
    known = read_history(files)
    known.append({"kind": kind, "time": records.now(), "token": token, **about})
    files.write(records.RESTARTS, records.listing(known[-records.KEEP_RESTARTS :]))


def budget(history: Sequence[Mapping[str, Any]]) -> list[Restart]:
    """The restarts since the last submit."""
    begin = max((i for i, entry in enumerate(history) if entry.get("kind") == SUBMIT), default=-1)
    return [
        Restart(datetime.fromisoformat(str(entry["time"])))
        for entry in history[begin + 1 :]
        if entry.get("kind", RESTART) == RESTART
    ]


def last_submission(history: Sequence[Mapping[str, Any]]) -> str | None:
    """What the last submit was part of: the Airflow run, so that clearing a task of it begins no new budget."""
    submits = [entry for entry in history if entry.get("kind") in (SUBMIT, ATTACH)]
    return str(submits[-1].get("submission") or "") or None if submits else None
