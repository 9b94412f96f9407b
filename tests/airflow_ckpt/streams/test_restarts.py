"""The restart history beside the checkpoint: a budget begins with a submit and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.streams.restart import FixedDelay
from airflow_ckpt.streams.restarts import budget, claim, last_submission, note, read_history
from ckpt_stream import look_again
from ckpt_stream import run_record as records
from ckpt_stream.look_again import Unreadable
from ckpt_stream.run_record import RESTART, SUBMIT
from tests.airflow_ckpt.streams.samples import at, text

pytestmark = pytest.mark.unit


def test_a_checkpoint_without_a_history_has_a_whole_budget(files: FsspecFiles) -> None:
    assert read_history(files) == []
    assert budget(read_history(files)) == []
    assert last_submission(read_history(files)) is None


def test_a_restart_uses_the_budget_up_and_a_submit_begins_a_new_one(files: FsspecFiles) -> None:
    used = []
    for kind in (SUBMIT, RESTART, RESTART, SUBMIT, RESTART):
        note(files, kind, "token")
        used.append(len(budget(read_history(files))))
    assert used == [0, 1, 2, 0, 1]


def test_the_budget_survives_whoever_read_it(files: FsspecFiles, tmp_path: Path) -> None:
    note(files, SUBMIT, "t0", by="dag.submit")
    note(files, RESTART, "t1", by="dag.resume", reason="SinkError: away")
    somebody_else = FsspecFiles(str(tmp_path))
    assert not FixedDelay(1).decide(budget(read_history(somebody_else)), at(10**8)).allowed
    assert read_history(somebody_else)[1]["reason"] == "SinkError: away"


def test_the_times_of_the_restarts_are_kept() -> None:
    history = [
        {"kind": SUBMIT, "time": text(0)},
        {"kind": RESTART, "time": text(5)},
        {"kind": RESTART, "time": text(9)},
    ]
    assert [r.time for r in budget(history)] == [at(5), at(9)]


def test_a_restart_that_a_driver_noted_by_itself_counts() -> None:
    """Of a version that knew no kinds, or of a driver that somebody started by hand."""
    history = [{"kind": SUBMIT, "time": text(0)}, {"time": text(5)}, {"kind": RESTART, "time": text(9), "run": "r"}]
    assert len(budget(history)) == 2


def test_a_history_without_a_submit_counts_from_its_beginning() -> None:
    assert len(budget([{"kind": RESTART, "time": text(5)}])) == 1


def test_the_last_submit_tells_what_it_was_part_of(files: FsspecFiles) -> None:
    note(files, SUBMIT, "t0", submission="dag run-1")
    note(files, SUBMIT, "t1", submission="dag run-2")
    note(files, RESTART, "t2")
    assert last_submission(read_history(files)) == "dag run-2"


def test_a_submit_that_was_part_of_nothing_is_nobodys(files: FsspecFiles) -> None:
    note(files, SUBMIT, "t0", submission="dag run-1")
    note(files, SUBMIT, "t1", submission=None)
    assert last_submission(read_history(files)) is None


def test_the_history_is_cut_at_its_beginning_and_never_forgets_a_used_budget(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "KEEP_RESTARTS", 5)
    note(files, SUBMIT, "t")
    for number in range(10):
        note(files, RESTART, f"t{number}")
    history = read_history(files)
    assert [entry["token"] for entry in history] == ["t5", "t6", "t7", "t8", "t9"]
    assert len(budget(history)) == 5
    assert not FixedDelay(3, timedelta(0)).decide(budget(history), at(0)).allowed


def test_a_history_that_cannot_be_read_is_an_error_and_not_an_empty_one(
    files: FsspecFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(f"{records.RESTARTS}/00000001.json", "half of it")
    monkeypatch.setattr(look_again, "PATIENCE_SECONDS", 0)
    with pytest.raises(Unreadable, match="restart history is not JSON"):
        read_history(files)


def test_only_one_answers_what_became_of_a_driver(files: FsspecFiles) -> None:
    first = claim(files, RESTART, "t2", "t1", by="ann")
    assert first.number == 1
    second = claim(files, SUBMIT, "t3", "t1", by="bob")
    assert (second.number, second.other) == (None, "t2")
    assert [entry["token"] for entry in read_history(files)] == ["t2"]
    assert claim(files, RESTART, "t4", "t2").number == 2


def test_an_answer_that_came_to_nothing_is_replaced_once(files: FsspecFiles) -> None:
    claim(files, RESTART, "t2", "t1")
    assert claim(files, RESTART, "t3", "t1", instead_of="t2").number == 2
    late = claim(files, RESTART, "t4", "t1", instead_of="t2")
    assert (late.number, late.other) == (None, "t3")


def test_a_stream_that_was_never_started_is_started_once(files: FsspecFiles) -> None:
    note(files, "attach", "", by="a run that a driver noted names no token")
    assert claim(files, SUBMIT, "t1", None).number == 2
    assert claim(files, SUBMIT, "t2", None).other == "t1"
