"""The files of the submit intents beside the checkpoint. Each is written before its driver is submitted: if the submitter dies
before it knows its driver, the next look finds the driver by its token, and starts no second one.

Each driver has its own file, ``_ckpt/intents/<n>.json``, with the number of its entry in the restart history: so a note about one
driver never replaces the intent of the next driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.streams.submit_intent import SubmitIntent
from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import FOLDER, FORMAT, INTENTS, build_dataclass, now, parse_document
from ckpt_stream.protocol.run_files.unfinished_files import read_when_whole
from ckpt_stream.protocol.storage import ReadableFiles, delete_old_files, file_numbers, numbered_file

#: The file of earlier versions, which kept only the intent of the newest driver.
OLD_FILE = f"{FOLDER}/intent.json"
#: How many intents are kept: the newest counts; earlier intents are for a user who investigates a failure.
KEEP_INTENTS = 20


def read_intent(files: ReadableFiles) -> SubmitIntent | None:
    """The newest intent. The intent that an earlier version left in `OLD_FILE` has the number 0."""
    return next(read_intents(files), None)


def read_intents(files: ReadableFiles) -> Iterator[SubmitIntent]:
    """The intents that are kept, newest first; each is read only when the caller iterates to it."""
    for number in reversed(file_numbers(files, INTENTS)):
        if (found := _read(files, numbered_file(INTENTS, number), number)) is not None:
            yield found
    if files.exists(OLD_FILE) and (found := _read(files, OLD_FILE, 0)) is not None:
        yield found


def _read(files: ReadableFiles, name: str, number: int) -> SubmitIntent | None:
    with naming_file(name):
        found = read_when_whole(files, name, _parse)
    if found is None:
        return None
    found = replace(found, number=number)
    note = found.kill_note
    if not files.exists(note):
        return found
    with naming_file(note):
        noted = read_when_whole(files, note, lambda text: parse_document(text, "note of a kill"))
    return found if noted is None else replace(found, killed=noted.get("killed"))


def write_intent(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    known = {f.name: getattr(intent, f.name) for f in fields(intent) if f.name != "later"}
    files.write(intent.path, json.dumps({**intent.later, "format": FORMAT, **known}))
    return intent


def write_new_intent(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    """Write the intent of a new driver, and delete old intents."""
    old = [n for n in file_numbers(files, INTENTS) if n < intent.number][: -KEEP_INTENTS + 1]
    there = files.names(INTENTS) if old else []
    delete_old_files(
        files, [f"{INTENTS}/{name}" for name in there if name.partition(".")[0] in {f"{n:08d}" for n in old}]
    )
    return write_intent(files, intent)


def add_handle(files: FsspecFiles, intent: SubmitIntent, handle: Mapping[str, Any]) -> SubmitIntent:
    return _add(files, intent, handle=handle)


def add_failure(files: FsspecFiles, intent: SubmitIntent, message: str) -> SubmitIntent:
    return _add(files, intent, failed={"message": message, "time": now()})


def note_kill(files: FsspecFiles, intent: SubmitIntent, by: str) -> SubmitIntent:
    return _note_kill(files, intent, {"by": by, "time": now()})


def withdraw_kill(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    """Remove the note of a kill: the driver could not be killed."""
    return _note_kill(files, intent, None)


def _note_kill(files: FsspecFiles, intent: SubmitIntent, killed: Mapping[str, str] | None) -> SubmitIntent:
    files.write(intent.kill_note, json.dumps({"format": FORMAT, "killed": killed}))
    return replace(intent, killed=killed)


def _add(files: FsspecFiles, intent: SubmitIntent, **values: Any) -> SubmitIntent:
    """Add to the intent as it is stored now: other processes may have added to it since it was read."""
    # The intent of an earlier version is not in this file yet.
    known = _read(files, intent.path, intent.number) if files.exists(intent.path) else None
    return write_intent(files, replace(known or intent, **values))


def _parse(text: str) -> SubmitIntent:
    document = parse_document(text, "submit intent")
    # An earlier version stored a command here. It is ignored, because another user could have written it.
    known = {f.name for f in fields(SubmitIntent)} | {"format", "command"}
    later = {name: value for name, value in document.items() if name not in known}
    return build_dataclass(SubmitIntent, {**document, "later": later}, "submit intent")
