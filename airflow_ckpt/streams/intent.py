"""The intent: written beside the checkpoint before a driver is submitted, so that a submitter that dies between the submit
and its answer leads to finding the driver, never to starting a second one.

Each driver has a file of its own, ``_ckpt/intents/<n>.json`` by the number of its entry in the restart history: what is noted
about one driver never replaces the intent of the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.checkpoint.files import FsspecFiles
from ckpt_stream.damaged import naming
from ckpt_stream.files import ReadableFiles, numbered, numbers, tidy
from ckpt_stream.look_again import read_listed
from ckpt_stream.run_record import FOLDER, FORMAT, INTENTS, build, now, parse

#: Of the version before this one, which kept the intent of the newest driver only.
OLD_FILE = f"{FOLDER}/intent.json"
#: The newest one counts; those before it are for people who look for what happened.
KEEP_INTENTS = 20


@dataclass(frozen=True)
class SubmitIntent:
    """A task or a user is about to start, or has started, a driver with this token."""

    token: str
    time: str
    #: Who: an Airflow task instance, or user@host.
    by: str
    runner: str
    stream: Mapping[str, Any] = field(default_factory=dict)
    #: The handle of the driver, once there is one.
    handle: Mapping[str, Any] | None = None
    #: Who had the driver killed on purpose, and when.
    killed: Mapping[str, str] | None = None
    #: Why there is no driver although the submit is over.
    failed: Mapping[str, str] | None = None
    #: Of the entry in the restart history.
    number: int = 0
    #: Fields of a later version, which this one writes back.
    later: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return numbered(INTENTS, self.number)

    @property
    def kill_note(self) -> str:
        """A file of its own: a user asks for the kill while another process notes the driver."""
        return self.path.replace(".json", ".kill.json")

    @property
    def age_from(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def age(self, at: datetime | None = None) -> float:
        return ((at or datetime.now(UTC)) - self.age_from).total_seconds()


def read_intent(files: ReadableFiles) -> SubmitIntent | None:
    """The newest intent. One that the version before this one has left has the number 0."""
    return next(read_intents(files), None)


def read_intents(files: ReadableFiles) -> Iterator[SubmitIntent]:
    """The intents that are kept, newest first; each is read when it is asked for."""
    for number in reversed(numbers(files, INTENTS)):
        if (found := _read(files, numbered(INTENTS, number), number)) is not None:
            yield found
    if files.exists(OLD_FILE) and (found := _read(files, OLD_FILE, 0)) is not None:
        yield found


def _read(files: ReadableFiles, name: str, number: int) -> SubmitIntent | None:
    with naming(name):
        found = read_listed(files, name, _parse)
    if found is None:
        return None
    found = replace(found, number=number)
    note = found.kill_note
    if not files.exists(note):
        return found
    with naming(note):
        noted = read_listed(files, note, lambda text: parse(text, "note of a kill"))
    return found if noted is None else replace(found, killed=noted.get("killed"))


def write_intent(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    known = {f.name: getattr(intent, f.name) for f in fields(intent) if f.name != "later"}
    files.write(intent.path, json.dumps({**intent.later, "format": FORMAT, **known}))
    return intent


def begin(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    """Write the intent of a new driver, and forget old ones."""
    old = [n for n in numbers(files, INTENTS) if n < intent.number][: -KEEP_INTENTS + 1]
    there = files.names(INTENTS) if old else []
    tidy(files, [f"{INTENTS}/{name}" for name in there if name.partition(".")[0] in {f"{n:08d}" for n in old}])
    return write_intent(files, intent)


def answered(files: FsspecFiles, intent: SubmitIntent, handle: Mapping[str, Any]) -> SubmitIntent:
    return _add(files, intent, handle=handle)


def noted_failure(files: FsspecFiles, intent: SubmitIntent, message: str) -> SubmitIntent:
    return _add(files, intent, failed={"message": message, "time": now()})


def noted_kill(files: FsspecFiles, intent: SubmitIntent, by: str) -> SubmitIntent:
    return _note_kill(files, intent, {"by": by, "time": now()})


def take_back_kill(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    """Of a driver that could not be killed."""
    return _note_kill(files, intent, None)


def _note_kill(files: FsspecFiles, intent: SubmitIntent, killed: Mapping[str, str] | None) -> SubmitIntent:
    files.write(intent.kill_note, json.dumps({"format": FORMAT, "killed": killed}))
    return replace(intent, killed=killed)


def _add(files: FsspecFiles, intent: SubmitIntent, **facts: Any) -> SubmitIntent:
    """Add to what is noted about a driver by now, which may be more than what was read before."""
    # That of the version before is not at this place yet.
    known = _read(files, intent.path, intent.number) if files.exists(intent.path) else None
    return write_intent(files, replace(known or intent, **facts))


def _parse(text: str) -> SubmitIntent:
    document = parse(text, "submit intent")
    # An older version noted a command. One that others could have written is not kept.
    known = {f.name for f in fields(SubmitIntent)} | {"format", "command"}
    later = {name: value for name, value in document.items() if name not in known}
    return build(SubmitIntent, {**document, "later": later}, "submit intent")
