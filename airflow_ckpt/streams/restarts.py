"""The restart history beside the checkpoint: what a strategy's budget is counted from.

A submit begins a new budget, a restart uses it up. Neither clearing a task nor restarting Airflow changes the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_ckpt.streams.restart import Restart
from ckpt_stream import restart_history
from ckpt_stream.files import ReadableFiles, WritableFiles
from ckpt_stream.run_record import RESTART, SUBMIT, now

#: A submit found the stream running: neither a new budget nor a use of it.
ATTACH = "attach"
#: Of a failure that names no driver's token, as that of a stream that was never started.
_UNKNOWN = object()


@dataclass(frozen=True)
class Claim:
    """Whether one may start the driver that follows another one."""

    #: Of the entry in the history; None if another one has answered this failure.
    number: int | None
    #: The token of the driver that the other one starts.
    other: str = ""


def read_history(files: ReadableFiles) -> list[dict[str, Any]]:
    return restart_history.read(files)[1]


def note(files: WritableFiles, kind: str, token: str, **about: Any) -> None:
    """Add an entry that answers no failure, whatever others do."""
    restart_history.add(files, _entry(kind, token, about))


def claim(
    files: WritableFiles, kind: str, token: str, after: str | None, *, instead_of: str | None = None, **about: Any
) -> Claim:
    """Note a submit or a restart, before the driver is started: an attempt that fails at once counts too.

    It answers what became of the driver `after`, and only one may do so: of two at once, one gets the claim. `instead_of` is
    the token of an answer that came to nothing, and is answered anew.
    """
    others: list[str] = []

    def is_answered(history: Sequence[Mapping[str, Any]]) -> bool:
        others[:] = [str(e["token"]) for e in history if e.get("after_token", _UNKNOWN) == after]
        return bool(others) and others[-1] != instead_of

    number = restart_history.add(files, _entry(kind, token, {**about, "after_token": after}), unless=is_answered)
    return Claim(number, "" if number is not None else others[-1])


def _entry(kind: str, token: str, about: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "time": now(), "token": token, **about}


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
