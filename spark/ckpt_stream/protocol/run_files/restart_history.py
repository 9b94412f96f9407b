"""The restart history beside the checkpoint: every submit and every restart of the stream, oldest first.

It is kept in numbered files ``_ckpt/restarts/<n>.json``, each with the whole history up to its newest entry. A writer adds an
entry by creating the file with the next number. Only one of two writers can create it: so no entry is lost, and only one writer
answers a failure.

A submit begins a new restart budget, a restart uses it up, an attach does neither. Neither clearing a task nor
restarting Airflow changes the history.

Earlier versions kept the history in one file. It is read while there is no numbered file, and the first of these carries it
over.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ckpt_stream.errors import NotAdded
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import FOLDER, INTENTS, RESTARTS, now
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED, STOPPED, RunRecord
from ckpt_stream.protocol.run_files.unfinished_files import read_when_whole
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles, delete_old_files, file_numbers, numbered_file

Entry = dict[str, Any]

SUBMIT, RESTART = "submit", "restart"
#: A submit found the stream running.
ATTACH = "attach"
#: The one file of earlier versions.
OLD_FILE = f"{FOLDER}/restarts.json"
#: How many files are kept: a reader opens the newest file a moment after it listed the folder, and fewer entries than these are
#: added in between.
KEEP_FILES = 10
#: How many entries a file keeps: more restarts than a strategy with a limit allows, because a budget is counted from them.
KEEP_RESTARTS = 1000
#: How much of a reason is kept: a history holds many, and the run record has the whole text.
LONGEST_REASON = 300
#: The sum of the pauses between attempts: enough for several writers that add an entry at the same moment. The time of the
#: attempts themselves does not count, so that a slow storage gets as many attempts.
PATIENCE_SECONDS = 15.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 1.0


@dataclass(frozen=True)
class StartEntry:
    """A user or a task starts a driver."""

    token: str
    by: str
    #: The state that the stream was in.
    after_state: str


@dataclass(frozen=True)
class SubmitEntry(StartEntry):
    """The start of a stream with a new restart budget."""

    #: The Airflow run that the submit belongs to: when a task of that run is cleared, no new budget begins.
    submission: str | None = None
    kind: str = SUBMIT


@dataclass(frozen=True)
class RestartEntry(StartEntry):
    """The restart of a stream after a failure."""

    after_run: str | None
    reason: str
    broken_since: str | None
    kind: str = RESTART


@dataclass(frozen=True)
class Claim:
    """Whether a user or a task may start the driver that follows a certain driver."""

    #: The number of the entry in the history; None if another user or task holds the claim.
    number: int | None
    #: The token of the driver that the other user or task starts.
    other: str = ""


def read_newest(files: ReadableFiles) -> tuple[int, list[Entry]]:
    """The number of the newest file, and the history in it; 0 if there is no numbered file."""
    while known := file_numbers(files, RESTARTS):
        found = _read(files, numbered_file(RESTARTS, known[-1]))
        if found is not None:
            return known[-1], found
        # Other writers have added entries since the listing, and deleted the files that these replace.
    return 0, (_read(files, OLD_FILE) or []) if files.exists(OLD_FILE) else []


def _read(files: ReadableFiles, name: str) -> list[Entry] | None:
    with naming_file(name):
        return read_when_whole(files, name, lambda text: record_files.list_from_json(text, "restart history"))


def add_entry(
    files: WritableFiles, entry: Entry, unless: Callable[[Sequence[Entry]], bool] = lambda _: False
) -> int | None:
    """Add an entry, unless `unless` is true of the history; returns the number of its file, or None.

    Raises NotAdded if the storage refuses the entry and shows no entry of another writer in its place.
    """
    entry = json.loads(json.dumps(entry))
    if entry.get("reason"):
        entry["reason"] = str(entry["reason"])[:LONGEST_REASON]
    paused, pause = 0.0, FIRST_PAUSE_SECONDS
    while True:
        # The intents are listed first, so that the history that is read afterwards has the entry of each listed intent. Their
        # numbers are not used again, even if a damaged file of the history was moved away.
        taken = max(file_numbers(files, INTENTS), default=0)
        number, history = read_newest(files)
        number = max(number, taken)
        if unless(history):
            return None
        text = record_files.list_to_json([*history, entry][-KEEP_RESTARTS:])
        files.create(numbered_file(RESTARTS, number + 1), text)
        # The file that exists now decides, not the answer of the storage: the answer may be to a retry of a request that had
        # succeeded; a storage that ignores the condition lets two writers create the file; and the file of a number may have been
        # deleted since the listing.
        if entry in read_newest(files)[1]:
            delete_old_files(
                files,
                [numbered_file(RESTARTS, n) for n in file_numbers(files, RESTARTS) if n <= number + 1 - KEEP_FILES],
            )
            return number + 1
        if paused >= PATIENCE_SECONDS:
            raise NotAdded(str(files.root), numbered_file(RESTARTS, number + 1), PATIENCE_SECONDS)
        # A random pause, so that several writers do not collide again.
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret depends on it
        paused, pause = paused + pause, min(2 * pause, LONGEST_PAUSE_SECONDS)


def read_history(files: ReadableFiles) -> list[Entry]:
    """The entries, oldest first."""
    return read_newest(files)[1]


def claim(
    files: WritableFiles, entry: SubmitEntry | RestartEntry, after: str | None, *, instead_of: str | None = None
) -> Claim:
    """Add a submit or a restart before its driver is started, so that an attempt that fails at once counts too.

    Only one entry may follow the driver `after`: of two writers at the same moment, one gets the claim. Pass `instead_of`,
    the token of a claim whose writer started no driver, to replace that claim.
    """
    others: list[str] = []

    def is_answered(history: Sequence[Mapping[str, Any]]) -> bool:
        others[:] = [str(e["token"]) for e in history if "after_token" in e and e["after_token"] == after]
        return bool(others) and others[-1] != instead_of

    number = add_entry(files, {**asdict(entry), "time": now(), "after_token": after}, unless=is_answered)
    return Claim(number, "" if number is not None else others[-1])


def note_attach(files: WritableFiles, submission: str | None, by: str) -> None:
    """Note that a submit found the stream running, unless that is noted already or the submit belongs to no Airflow run."""
    if submission is not None and last_submission(read_history(files)) != submission:
        add_entry(files, {"kind": ATTACH, "time": now(), "token": "", "by": by, "submission": submission})


def note_own_start(files: WritableFiles, mine: RunRecord, others: Sequence[RunRecord]) -> None:
    """Note that the driver of the run `mine` replaces the newest of the other runs, unless that run ended well.

    The user or task that started the driver may have noted the restart already; a start by hand, by the launcher or by YARN
    is noted only by the driver.
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
    add_entry(files, entry, unless=lambda known: any(e.get("token") == mine.token for e in known))


def last_submission(history: Sequence[Mapping[str, Any]]) -> str | None:
    """What the last submit was part of."""
    submits = [entry for entry in history if entry.get("kind") in (SUBMIT, ATTACH)]
    return str(submits[-1].get("submission") or "") or None if submits else None
