"""The entries of the restart history: of several users and tasks that answer one failure, one starts a driver."""

from __future__ import annotations

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.errors import Unreadable
from ckpt_stream.protocol.run_files import record_files, unfinished_files
from ckpt_stream.protocol.run_files.restart_history import (
    ATTACH,
    RESTART,
    SUBMIT,
    RestartEntry,
    SubmitEntry,
    claim,
    last_submission,
    note_attach,
    note_own_start,
    read_history,
)
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED, RUNNING, STOPPED, Failure, RunRecord

pytestmark = pytest.mark.unit


def submit(token: str, submission: str | None = None) -> SubmitEntry:
    return SubmitEntry(token, "dag.submit run-1", "NEW", submission)


def restart(token: str) -> RestartEntry:
    return RestartEntry(token, "dag.resume run-1", "FAILED", "the-run", "SinkError: away", "2026-11-18T10:00:00+00:00")


def test_a_claim_writes_who_starts_a_driver_after_which_one_and_why(files: FsspecFiles) -> None:
    claim(files, submit("t1", "dag run-1"), None)
    claim(files, restart("t2"), "t1")
    history = read_history(files)
    times = [entry.pop("time") for entry in history]
    assert times == sorted(times)
    assert history == [
        {
            "kind": SUBMIT,
            "token": "t1",
            "by": "dag.submit run-1",
            "after_state": "NEW",
            "after_token": None,
            "submission": "dag run-1",
        },
        {
            "kind": RESTART,
            "token": "t2",
            "by": "dag.resume run-1",
            "after_state": "FAILED",
            "after_token": "t1",
            "after_run": "the-run",
            "reason": "SinkError: away",
            "broken_since": "2026-11-18T10:00:00+00:00",
        },
    ]


def test_only_one_claim_answers_what_became_of_a_driver(files: FsspecFiles) -> None:
    first = claim(files, restart("t2"), "t1")
    assert first.number == 1
    second = claim(files, submit("t3"), "t1")
    assert (second.number, second.other) == (None, "t2")
    assert [entry["token"] for entry in read_history(files)] == ["t2"]
    assert claim(files, restart("t4"), "t2").number == 2


def test_an_answer_that_started_no_driver_is_replaced_once(files: FsspecFiles) -> None:
    claim(files, restart("t2"), "t1")
    assert claim(files, restart("t3"), "t1", instead_of="t2").number == 2
    late = claim(files, restart("t4"), "t1", instead_of="t2")
    assert (late.number, late.other) == (None, "t3")


def test_a_stream_that_was_never_started_is_started_once(files: FsspecFiles) -> None:
    note_attach(files, "dag run-1", "an entry that answers no failure names no token")
    assert claim(files, submit("t1"), None).number == 2
    assert claim(files, submit("t2"), None).other == "t1"


def test_the_last_submit_says_what_it_was_part_of(files: FsspecFiles) -> None:
    assert last_submission(read_history(files)) is None
    claim(files, submit("t0", "dag run-1"), None)
    claim(files, submit("t1", "dag run-2"), "t0")
    claim(files, restart("t2"), "t1")
    assert last_submission(read_history(files)) == "dag run-2"


def test_a_submit_that_is_part_of_nothing_hides_the_one_before_it(files: FsspecFiles) -> None:
    claim(files, submit("t0", "dag run-1"), None)
    claim(files, submit("t1", None), "t0")
    assert last_submission(read_history(files)) is None


def test_a_submit_that_found_the_stream_running_is_noted_once(files: FsspecFiles) -> None:
    claim(files, submit("t0", "dag run-1"), None)
    for submission in ("dag run-1", None, "dag run-2", "dag run-2"):
        note_attach(files, submission, "dag.submit")
    history = read_history(files)
    assert [(entry["kind"], entry["submission"]) for entry in history] == [(SUBMIT, "dag run-1"), (ATTACH, "dag run-2")]


@pytest.mark.parametrize(
    ("before", "after_state", "reason"),
    [
        (RunRecord("a", "s", state=FAILED, failure=Failure("SinkError", "away")), "FAILED", "SinkError: away"),
        (RunRecord("a", "s", state=RUNNING), "LOST", "the driver vanished"),
    ],
)
def test_a_driver_notes_its_own_start_unless_the_task_that_started_it_has(
    files: FsspecFiles, before: RunRecord, after_state: str, reason: str
) -> None:
    claim(files, restart("t1"), "t0")
    note_own_start(files, RunRecord("b", "s", token="t1"), [before])
    assert len(read_history(files)) == 1
    note_own_start(files, RunRecord("c", "s", token="by hand"), [RunRecord("0", "s", state=STOPPED), before])
    entry = read_history(files)[-1]
    assert (entry["kind"], entry["token"], entry["run"], entry["after_run"]) == (RESTART, "by hand", "c", "a")
    assert (entry["after_state"], entry["reason"]) == (after_state, reason)


@pytest.mark.parametrize("others", [[], [STOPPED], [FAILED, FINISHED]])
def test_a_driver_that_replaces_no_broken_run_notes_nothing(files: FsspecFiles, others: list[str]) -> None:
    note_own_start(files, RunRecord("b", "s", token="t"), [RunRecord("a", "s", state=state) for state in others])
    assert read_history(files) == []


def test_a_history_that_cannot_be_read_is_an_error_and_not_an_empty_one(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(f"{record_files.RESTARTS}/00000001.json", "half of it")
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    with pytest.raises(Unreadable) as unreadable:
        read_history(files)
    assert unreadable.value.file == f"{record_files.RESTARTS}/00000001.json"
