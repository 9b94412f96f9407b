"""The restarts that count against a budget: a budget begins with a submit and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.streams.restart_strategies import FixedDelay
from airflow_ckpt.supervision.resume_plan import budget
from ckpt_stream.protocol.run_files import restart_history
from ckpt_stream.protocol.run_files.restart_history import RESTART, SUBMIT, read_history
from tests.airflow_ckpt.supervision.samples import at, text

pytestmark = pytest.mark.unit


def test_a_checkpoint_without_a_history_has_a_whole_budget(files: FsspecFiles) -> None:
    assert budget(read_history(files)) == []


def test_a_restart_uses_the_budget_up_and_a_submit_begins_a_new_one() -> None:
    kinds = (SUBMIT, RESTART, RESTART, SUBMIT, RESTART)
    history = [{"kind": kind, "time": text(n)} for n, kind in enumerate(kinds)]
    assert [len(budget(history[: n + 1])) for n in range(len(kinds))] == [0, 1, 2, 0, 1]


def test_the_budget_is_the_same_for_every_reader(files: FsspecFiles, tmp_path: Path) -> None:
    for n, kind in enumerate((SUBMIT, RESTART)):
        restart_history.add_entry(files, {"kind": kind, "time": text(n), "reason": "SinkError: away"})
    another_worker = FsspecFiles(str(tmp_path))
    assert not FixedDelay(1).decide(budget(read_history(another_worker)), at(10**8)).allowed
    assert read_history(another_worker)[1]["reason"] == "SinkError: away"


def test_the_times_of_the_restarts_are_kept() -> None:
    history = [
        {"kind": SUBMIT, "time": text(0)},
        {"kind": RESTART, "time": text(5)},
        {"kind": RESTART, "time": text(9)},
    ]
    assert [r.time for r in budget(history)] == [at(5), at(9)]


def test_a_restart_that_a_driver_noted_by_itself_counts() -> None:
    """Of a version that knew no kinds, or of a driver that a user started by hand."""
    history = [{"kind": SUBMIT, "time": text(0)}, {"time": text(5)}, {"kind": RESTART, "time": text(9), "run": "r"}]
    assert len(budget(history)) == 2


def test_a_history_without_a_submit_counts_from_its_beginning() -> None:
    assert len(budget([{"kind": RESTART, "time": text(5)}])) == 1


def test_a_history_that_is_cut_at_its_beginning_never_forgets_a_used_budget() -> None:
    history = [{"kind": RESTART, "time": text(n)} for n in range(5)]
    assert len(budget(history)) == 5
    assert not FixedDelay(3, timedelta(0)).decide(budget(history), at(0)).allowed
