"""What a resume would do: nothing, wait, start, or give up, by the stream's state and what is left of its budget."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.exceptions import NO_CURE, NO_MORE_RESTARTS, GivenUp
from airflow_ckpt.streams.restart_strategies import FixedDelay, NoRestart
from airflow_ckpt.supervision.resume_plan import plan_resume
from tests.airflow_ckpt.supervision.samples import a_status, a_stream

pytestmark = pytest.mark.unit

STREAM = a_stream(restart=FixedDelay(1, timedelta(seconds=60)))


@pytest.fixture
def files(tmp_path: Path) -> FsspecFiles:
    """A checkpoint without a restart history: the whole budget is left."""
    return FsspecFiles(str(tmp_path))


def broken(ago: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()


@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "IDLE", "STOPPED", "FINISHED", "NEW"])
def test_a_stream_that_is_not_broken_is_not_restarted(files: FsspecFiles, state: str) -> None:
    assert plan_resume(STREAM, files, a_status(state)).action == "none"


@pytest.mark.parametrize("state", ["FAILED", "LOST", "STALLED"])
def test_a_broken_stream_is_restarted_when_its_pause_is_over(files: FsspecFiles, state: str) -> None:
    early, late = (plan_resume(STREAM, files, a_status(state, broken_since=broken(ago))) for ago in (20, 70))
    assert (early.action, round(early.seconds, -1)) == ("wait", 40)
    assert (late.action, late.seconds) == ("start", 0.0)


def test_a_stream_without_budget_is_given_up_with_the_command_for_a_new_one(files: FsspecFiles) -> None:
    with pytest.raises(GivenUp, match="airflow-ckpt resume file:///data/orders --new-budget") as given_up:
        plan_resume(a_stream(restart=NoRestart()), files, a_status("FAILED", broken_since=broken(1)))
    assert given_up.value.kind == NO_MORE_RESTARTS


def test_a_failure_that_a_restart_cannot_cure_uses_up_no_budget_and_is_given_up(files: FsspecFiles) -> None:
    with pytest.raises(GivenUp, match="LedgerLost") as given_up:
        plan_resume(STREAM, files, a_status("FAILED", reason="LedgerLost: batch 7", restart_may_help=False))
    assert given_up.value.kind == NO_CURE
    again = pickle.loads(pickle.dumps(given_up.value))  # noqa: S301 - our own
    assert (again.kind, str(again)) == (NO_CURE, str(given_up.value))
