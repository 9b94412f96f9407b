"""The restart history beside the checkpoint: every submit and every restart of the stream, oldest first.

It is kept in numbered files ``_ckpt/restarts/<n>.json``, each with the whole history up to its newest entry. To add an entry is
to create the file of the next number, which of two writers at the same moment only one can do: no entry is lost, and which
writer answers a failure is decided once.

Earlier versions kept the history in one file. It is read while there is no numbered file, and the first of these carries it
over.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from ckpt_stream.errors import NotAdded
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import FOLDER, INTENTS, RESTARTS
from ckpt_stream.protocol.run_files.unfinished_files import read_when_whole
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles, delete_old_files, file_numbers, numbered_file

Entry = dict[str, Any]

#: Of earlier versions.
OLD_FILE = f"{FOLDER}/restarts.json"
#: A reader opens the newest file a moment after it listed the folder: fewer entries than these are added in between.
KEEP_FILES = 10
#: More restarts than a strategy with a limit allows: a budget is counted from them.
KEEP_RESTARTS = 1000
#: A history holds many reasons; the run record of each has the whole one.
LONGEST_REASON = 300
#: The pauses between the tries, in all: time for each of several writers that add an entry at the same moment. What the tries
#: take comes on top, so that a slow storage allows as many of them.
PATIENCE_SECONDS = 15.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 1.0


def read_newest(files: ReadableFiles) -> tuple[int, list[Entry]]:
    """The number of the newest file, and the history in it; 0 where there is none with a number."""
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
    """Add an entry, unless `unless` is true of the history; the number of its file, or None.

    Raises NotAdded where the storage neither takes the entry nor shows the entry of another writer in its place.
    """
    entry = json.loads(json.dumps(entry))
    if entry.get("reason"):
        entry["reason"] = str(entry["reason"])[:LONGEST_REASON]
    paused, pause = 0.0, FIRST_PAUSE_SECONDS
    while True:
        # Looked at first: an intent that is seen here has its entry in the history that is read after it. Its number is not
        # given again where a damaged file of the history was moved away.
        taken = max(file_numbers(files, INTENTS), default=0)
        number, history = read_newest(files)
        number = max(number, taken)
        if unless(history):
            return None
        text = record_files.list_to_json([*history, entry][-KEEP_RESTARTS:])
        files.create(numbered_file(RESTARTS, number + 1), text)
        # The file that is there now decides, not the answer: that may be of a second try whose first was answered too late; a
        # storage that ignores the condition lets both writers create it; and a number may have been deleted since the listing.
        if entry in read_newest(files)[1]:
            delete_old_files(
                files,
                [numbered_file(RESTARTS, n) for n in file_numbers(files, RESTARTS) if n <= number + 1 - KEEP_FILES],
            )
            return number + 1
        if paused >= PATIENCE_SECONDS:
            raise NotAdded(str(files.root), numbered_file(RESTARTS, number + 1), PATIENCE_SECONDS)
        # Not all at the same moment again.
        time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret depends on it
        paused, pause = paused + pause, min(2 * pause, LONGEST_PAUSE_SECONDS)
