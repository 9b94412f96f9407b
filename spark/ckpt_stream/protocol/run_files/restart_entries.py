"""What is written into the restart history: each kind of entry, and the claim that only one writer gets.

A submit begins a new restart budget, a restart uses it up, an attach does neither. Neither clearing a task nor
restarting Airflow changes the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ckpt_stream.protocol.run_files import restart_history
from ckpt_stream.protocol.run_files.record_files import now
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED, STOPPED, RunRecord
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles

SUBMIT, RESTART = "submit", "restart"
#: A submit found the stream running.
ATTACH = "attach"


@dataclass(frozen=True)
class SubmitEntry:
    """A user or a task starts the stream with a new restart budget."""

    token: str
    by: str
    #: The state that the stream was in.
    after_state: str
    #: What the submit is part of: the Airflow run, so that clearing a task of it begins no new budget.
    submission: str | None = None
    kind: str = SUBMIT


@dataclass(frozen=True)
class RestartEntry:
    """A user or a task restarts the stream after a failure."""

    token: str
    by: str
    after_state: str
    after_run: str | None
    reason: str
    broken_since: str | None
    kind: str = RESTART


@dataclass(frozen=True)
class Claim:
    """Whether a user or a task may start the driver that follows another one."""

    #: The number of the entry in the history; None if another user or task holds the claim.
    number: int | None
    #: The token of the driver that the other user or task starts.
    other: str = ""


def read_history(files: ReadableFiles) -> list[restart_history.Entry]:
    """The entries, oldest first."""
    return restart_history.read_newest(files)[1]


def claim(
    files: WritableFiles, entry: SubmitEntry | RestartEntry, after: str | None, *, instead_of: str | None = None
) -> Claim:
    """Note a submit or a restart before its driver is started, so that an attempt that fails at once counts too.

    Only one entry may follow the driver `after`: of two writers at the same moment, one gets the claim. Pass `instead_of`,
    the token of a claim whose writer started no driver, to replace that claim.
    """
    others: list[str] = []

    def is_answered(history: Sequence[Mapping[str, Any]]) -> bool:
        others[:] = [str(e["token"]) for e in history if "after_token" in e and e["after_token"] == after]
        return bool(others) and others[-1] != instead_of

    number = restart_history.add_entry(
        files, {**asdict(entry), "time": now(), "after_token": after}, unless=is_answered
    )
    return Claim(number, "" if number is not None else others[-1])


def note_attach(files: WritableFiles, submission: str | None, by: str) -> None:
    """Note that a submit found the stream running, unless it is noted already or is part of nothing."""
    if submission is not None and last_submission(read_history(files)) != submission:
        restart_history.add_entry(
            files, {"kind": ATTACH, "time": now(), "token": "", "by": by, "submission": submission}
        )


def note_own_start(files: WritableFiles, mine: RunRecord, others: Sequence[RunRecord]) -> None:
    """Note that the driver of the run `mine` replaces the newest of the other runs, unless that one ended well.

    The user or task that started the driver may have noted the restart already; a start by hand, by the launcher or by YARN
    is noted by the driver alone.
    """
    if not others or others[-1].state in (STOPPED, FINISHED):
        return
    before = others[-1]
    entry = {
        "kind": RESTART,
        "time": now(),
        "token": mine.token,
        "run": mine.run,
        "after_run": before.run,
        "after_state": before.state if before.state == FAILED else "LOST",
        "reason": f"{before.failure.error}: {before.failure.message}" if before.failure else "the driver vanished",
    }
    restart_history.add_entry(files, entry, unless=lambda known: any(e.get("token") == mine.token for e in known))


def last_submission(history: Sequence[Mapping[str, Any]]) -> str | None:
    """What the last submit was part of."""
    submits = [entry for entry in history if entry.get("kind") in (SUBMIT, ATTACH)]
    return str(submits[-1].get("submission") or "") or None if submits else None
