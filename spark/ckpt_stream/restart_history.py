"""The restart history beside the checkpoint: every submit and every restart of the stream, oldest first.

It is kept in numbered files ``_ckpt/restarts/<n>.json``, each with the whole history up to its newest entry. To add an entry is
to create the file of the next number, which of two at the same moment only one can do: no entry is lost, and who answers a
failure is decided once.

The version before this one kept it in one file. That one is read while there is no numbered file, and the first of these
carries it over.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from ckpt_stream import run_record as records
from ckpt_stream.damaged import naming
from ckpt_stream.files import ReadableFiles, WritableFiles, numbered, numbers, tidy
from ckpt_stream.look_again import read_listed
from ckpt_stream.run_record import FOLDER, INTENTS, RESTARTS, RunRecordError

Entry = dict[str, Any]

#: Of the version before this one.
OLD_FILE = f"{FOLDER}/restarts.json"
#: A reader opens the newest file a moment after it listed the folder: fewer entries than these are added in between.
KEEP_FILES = 10
#: A history holds many reasons; the run record of each has the whole one.
LONGEST_REASON = 300
#: Each of those who add an entry at the same moment gets through within this time, tries included.
PATIENCE_SECONDS = 15.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 1.0


class NotAdded(RunRecordError):
    """The storage refuses a new entry of the restart history, and shows none that is in its place."""

    restart_may_help = True

    def __init__(self, storage: str, file: str) -> None:
        self.storage, self.file = storage, file
        super().__init__(
            f"{storage} refused to create {file} for {PATIENCE_SECONDS:g} s, as if it were there, and lists nothing of it. The "
            "entry may be there, and no driver was started for it. Look whether the storage's listings are up to date (a cache "
            "or a gateway before it may keep old ones) and whether the file can be created there, then do it again."
        )

    def __reduce__(self) -> tuple[type[NotAdded], tuple[str, str]]:
        return type(self), (self.storage, self.file)


def read(files: ReadableFiles) -> tuple[int, list[Entry]]:
    """The number of the newest file, and the history in it; 0 where there is none with a number."""
    while known := numbers(files, RESTARTS):
        found = _read(files, numbered(RESTARTS, known[-1]))
        if found is not None:
            return known[-1], found
        # Others have added entries meanwhile, and deleted what these replace.
    return 0, (_read(files, OLD_FILE) or []) if files.exists(OLD_FILE) else []


def _read(files: ReadableFiles, name: str) -> list[Entry] | None:
    with naming(name):
        return read_listed(files, name, lambda text: records.entries(text, "restart history"))


def add(files: WritableFiles, entry: Entry, unless: Callable[[Sequence[Entry]], bool] = lambda _: False) -> int | None:
    """Add an entry, unless the history speaks against it; the number of its file, or None.

    Raises NotAdded where the storage neither takes the entry nor shows that of another one.
    """
    entry = json.loads(json.dumps(entry))
    if entry.get("reason"):
        entry["reason"] = str(entry["reason"])[:LONGEST_REASON]
    waited, pause = 0.0, FIRST_PAUSE_SECONDS
    while True:
        # Looked at first: an intent that is seen here has its entry in the history that is read after it. Its number is not
        # given again where a damaged file of the history was moved away.
        taken = max(numbers(files, INTENTS), default=0)
        number, history = read(files)
        number = max(number, taken)
        if unless(history):
            return None
        text = records.listing([*history, entry][-records.KEEP_RESTARTS :])
        files.create(numbered(RESTARTS, number + 1), text)
        # What is there now decides, and not the answer: that may be of a second try whose first one was answered too late; a
        # storage that ignores the condition lets both create it; and a number may have been deleted since it was listed.
        if entry in read(files)[1]:
            tidy(files, [numbered(RESTARTS, n) for n in numbers(files, RESTARTS) if n <= number + 1 - KEEP_FILES])
            return number + 1
        if waited >= PATIENCE_SECONDS:
            raise NotAdded(str(files.root), numbered(RESTARTS, number + 1))
        # Not all at the same moment again.
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret depends on it
        waited, pause = waited + pause, min(2 * pause, LONGEST_PAUSE_SECONDS)
