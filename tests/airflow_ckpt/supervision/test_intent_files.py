"""The intent is read back as it was written, and each note adds to it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.supervision.intent_files import (
    KEEP_INTENTS,
    add_failure,
    add_handle,
    note_kill,
    read_intent,
    withdraw_kill,
    write_intent,
    write_new_intent,
)
from ckpt_stream.errors import RunRecordError
from ckpt_stream.protocol.run_files import unfinished_files
from ckpt_stream.protocol.run_files.record_files import INTENTS
from tests.airflow_ckpt.supervision.samples import a_stream, an_intent, at

pytestmark = pytest.mark.unit


def test_a_checkpoint_without_a_submit_has_no_intent(files: FsspecFiles) -> None:
    assert read_intent(files) is None


def test_an_intent_is_read_back_as_it_was_written(files: FsspecFiles) -> None:
    intent = an_intent(stream=a_stream().as_dict())
    assert write_intent(files, intent) == intent
    assert read_intent(files) == intent


def test_the_command_that_an_older_version_noted_is_not_even_read(files: FsspecFiles) -> None:
    command = {"argv": ["sh", "-c", "touch /tmp/owned"], "env": {}, "folder": "/"}
    files.write(an_intent().path, json.dumps({"format": 1, **asdict(an_intent()), "command": command}))
    found = read_intent(files)
    assert found == an_intent()
    assert "owned" not in repr(found)


def test_an_answer_adds_the_driver_and_changes_nothing_else(files: FsspecFiles) -> None:
    intent = write_intent(files, an_intent(stream=a_stream().as_dict()))
    handle = {"kind": "process", "id": "7", "token": "t1", "details": {"log": "/x/driver.log"}}
    add_handle(files, intent, handle)
    found = read_intent(files)
    assert found is not None
    assert (found.handle, found.stream, found.token) == (handle, intent.stream, "t1")


def test_a_failed_submit_and_a_kill_are_noted_with_their_time_and_keep_the_rest(files: FsspecFiles) -> None:
    intent = add_handle(files, write_intent(files, an_intent()), {"kind": "process", "id": "7", "token": "t1"})
    note_kill(files, add_failure(files, intent, "QueueMissing"), "ann")
    found = read_intent(files)
    assert found is not None
    assert found.failed is not None
    assert found.killed is not None
    assert (found.failed["message"], found.killed["by"], found.handle) == ("QueueMissing", "ann", intent.handle)
    assert found.failed["time"] <= found.killed["time"]


def test_the_next_submit_forgets_what_became_of_the_one_before(files: FsspecFiles) -> None:
    note_kill(files, add_failure(files, write_intent(files, an_intent("t0", number=1)), "no"), "ann")
    write_new_intent(files, an_intent("t1", number=2))
    found = read_intent(files)
    assert found is not None
    assert (found.token, found.failed, found.killed, found.handle) == ("t1", None, None, None)


def test_the_age_counts_from_the_moment_it_was_written() -> None:
    assert an_intent(when=10).age(at(70)) == 60


def test_what_is_noted_about_a_driver_never_replaces_the_intent_of_the_next(files: FsspecFiles) -> None:
    """Someone who looks finds the first driver while another one starts the second."""
    first = write_intent(files, an_intent("t1", number=1))
    write_intent(files, an_intent("t2", number=2))
    add_handle(files, first, {"kind": "process", "id": "7", "token": "t1"})
    found = read_intent(files)
    assert found is not None
    assert (found.token, found.handle) == ("t2", None)


def test_what_others_have_noted_since_an_intent_was_read_stays(files: FsspecFiles) -> None:
    seen = write_intent(files, an_intent("t1", number=1))
    note_kill(files, seen, "ann")
    add_handle(files, seen, {"kind": "process", "id": "7", "token": "t1"})
    found = read_intent(files)
    assert found is not None
    assert found.killed is not None
    assert found.handle is not None


def test_old_intents_are_forgotten(files: FsspecFiles) -> None:
    for number in range(1, KEEP_INTENTS + 6):
        write_new_intent(files, an_intent(f"t{number}", number=number))
    assert len(files.names(INTENTS)) == KEEP_INTENTS
    found = read_intent(files)
    assert found is not None
    assert found.token == f"t{KEEP_INTENTS + 5}"


def stored(**values: Any) -> str:
    required = {"token": "t", "time": "2026-11-18T12:00:00+00:00", "by": "ann", "runner": "process"}
    return json.dumps({"format": 1, **required, **values})


def test_fields_of_a_later_version_are_passed_over_and_written_back(files: FsspecFiles) -> None:
    files.write(f"{INTENTS}/00000000.json", stored(colour="blue"))
    intent = read_intent(files)
    assert intent is not None
    add_failure(files, intent, "QueueMissing")
    document = json.loads(files.read(f"{INTENTS}/00000000.json") or "")
    assert (document["colour"], document["failed"]["message"]) == ("blue", "QueueMissing")


@pytest.mark.parametrize(
    "text", ["half of it", json.dumps({"format": 99, "token": "t"}), '{"format": 1, "token": "t"}']
)
def test_an_intent_that_cannot_be_read_is_an_error_and_not_none(
    files: FsspecFiles, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    files.write(f"{INTENTS}/00000001.json", text)
    with pytest.raises(RunRecordError, match="submit intent"):
        read_intent(files)


def of_the_version_before(files: FsspecFiles, **values: Any) -> None:
    """What that version wrote: one file, with the command that it would run."""
    empty = {"stream": {}, "handle": None, "command": {"argv": ["sh", "-c", "touch /tmp/owned"]}, "killed": None}
    document = json.loads(stored(**{**empty, "failed": None, **values}))
    files.write("_ckpt/intent.json", json.dumps(document, indent=1, sort_keys=True))


def test_the_intent_of_the_version_before_is_read_without_its_command(files: FsspecFiles) -> None:
    handle = {"kind": "yarn", "id": "application_1_0001", "token": "t", "details": {}}
    of_the_version_before(files, runner="yarn", handle=handle)
    found = read_intent(files)
    assert found is not None
    assert (found.token, found.runner, found.handle, found.number) == ("t", "yarn", handle, 0)
    assert "owned" not in repr(found)


def test_a_kill_that_the_version_before_noted_is_still_known(files: FsspecFiles) -> None:
    of_the_version_before(files, killed={"by": "ann", "time": "2026-11-18T12:01:00+00:00"})
    found = read_intent(files)
    assert found is not None
    assert (found.killed or {}).get("by") == "ann"


def test_what_is_noted_after_the_upgrade_goes_to_the_new_place_and_the_next_driver_follows(files: FsspecFiles) -> None:
    of_the_version_before(files)
    before = files.read("_ckpt/intent.json")
    seen = read_intent(files)
    assert seen is not None
    note_kill(files, add_handle(files, seen, {"kind": "process", "id": "7", "token": "t"}), "ann")
    found = read_intent(files)
    assert found is not None
    assert (found.token, (found.handle or {})["id"], (found.killed or {})["by"]) == ("t", "7", "ann")
    assert files.read("_ckpt/intent.json") == before
    write_new_intent(files, an_intent("t1", number=1))
    following = read_intent(files)
    assert following is not None
    assert (following.token, following.killed) == ("t1", None)


def test_no_newer_intent_is_deleted_as_an_old_one(files: FsspecFiles) -> None:
    for number in range(100, 100 + KEEP_INTENTS):
        write_intent(files, an_intent(f"t{number}", number=number))
    write_new_intent(files, an_intent("late", number=50))
    assert f"{50:08d}.json" in files.names(INTENTS)
    assert len(files.names(INTENTS)) == KEEP_INTENTS + 1


def test_a_kill_that_is_noted_while_another_one_notes_the_driver_stays(tmp_path: Path) -> None:
    """Between reading the intent and writing it back there is always a moment."""

    class Between(FsspecFiles):
        def write(self, name: str, text: str) -> None:
            if not killed and '"id": "7"' in text:
                killed.append(seen)
                note_kill(self, seen, "ann")
            super().write(name, text)

    files, killed = Between(str(tmp_path)), []
    seen = write_intent(files, an_intent("t1", number=1))
    add_handle(files, seen, {"kind": "process", "id": "7", "token": "t1"})
    found = read_intent(files)
    assert found is not None
    assert killed
    assert (found.handle or {})["id"] == "7"
    assert (found.killed or {}).get("by") == "ann"


def test_a_look_that_notes_the_driver_knows_of_a_kill_that_was_noted_since(files: FsspecFiles) -> None:
    seen = write_intent(files, an_intent("t1", number=1))
    note_kill(files, seen, "ann")
    assert (add_handle(files, seen, {"kind": "process", "id": "7", "token": "t1"}).killed or {}).get("by") == "ann"


def test_a_kill_that_failed_is_taken_back_and_nothing_else(files: FsspecFiles) -> None:
    seen = write_intent(files, an_intent("t1", number=1))
    note_kill(files, seen, "ann")
    add_handle(files, seen, {"kind": "process", "id": "7", "token": "t1"})
    withdraw_kill(files, seen)
    found = read_intent(files)
    assert found is not None
    assert (found.killed, (found.handle or {})["id"]) == (None, "7")


def test_the_note_of_a_kill_is_forgotten_with_its_intent(files: FsspecFiles) -> None:
    note_kill(files, write_new_intent(files, an_intent("t1", number=1)), "ann")
    for number in range(2, KEEP_INTENTS + 2):
        write_new_intent(files, an_intent(f"t{number}", number=number))
    assert len(files.names(INTENTS)) == KEEP_INTENTS
