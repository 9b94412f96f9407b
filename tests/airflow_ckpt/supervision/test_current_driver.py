"""The driver that a look is about: the newest submit's, unless it gave way; hosts' clocks decide nothing between submits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.streams.driver_state import ENDED, DriverState
from airflow_ckpt.supervision.current_driver import current_driver
from airflow_ckpt.supervision.intent_files import write_intent
from ckpt_stream.protocol.run_files.record_files import now
from ckpt_stream.protocol.run_files.run_record import (
    FAILED,
    FINISHED,
    NOT_ENDED,
    RUNNING,
    STARTING,
    STOPPED,
    Failure,
    run_name,
)
from tests.airflow_ckpt.supervision.fakes import Deployment, intent_of
from tests.airflow_ckpt.supervision.samples import a_failure, a_run, an_intent, at

pytestmark = pytest.mark.unit

GAVE_WAY = Failure("DriverAlive", "another run lives")


class Folder(FsspecFiles):
    """A checkpoint with submits at the times of Airflow's clock, and runs at those of their hosts'."""

    def submitted(self, *tokens: str) -> None:
        for number, token in enumerate(tokens, start=1):
            write_intent(self, an_intent(token, when=100 * number, number=number))

    def ran(self, token: str, *states: str, begun: float, failure: Failure | None = None) -> None:
        run = a_run(*((state, begun + n) for n, state in enumerate(states)), token=token, failure=failure)
        run.run = run_name(at(begun), token)
        self.write(run.path, run.to_json())

    def tokens(self) -> tuple[str | None, str | None]:
        """Of the run and of the intent that count."""
        found = current_driver(self)
        return found.run and found.run.token, found.intent and found.intent.token


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def test_a_stream_that_was_never_started_has_neither(folder: Folder) -> None:
    assert folder.tokens() == (None, None)


def test_a_submitted_driver_without_a_record_has_its_intent_alone(folder: Folder) -> None:
    folder.submitted("a")
    assert folder.tokens() == (None, "a")


@pytest.mark.parametrize("alive", NOT_ENDED)
def test_a_second_driver_that_was_refused_does_not_hide_the_one_that_lives(folder: Folder, alive: str) -> None:
    folder.submitted("a", "b")
    folder.ran("a", alive, begun=110)
    folder.ran("b", STARTING, FAILED, begun=210, failure=GAVE_WAY)
    assert folder.tokens() == ("a", "a")


def test_a_driver_that_was_refused_beside_one_started_by_hand_does_not_hide_it(folder: Folder) -> None:
    folder.submitted("b")
    folder.ran("by-hand", RUNNING, begun=50)
    folder.ran("b", STARTING, FAILED, begun=110, failure=GAVE_WAY)
    assert folder.tokens() == ("by-hand", None)


def test_a_driver_that_was_refused_counts_when_the_other_one_has_ended_since(folder: Folder) -> None:
    folder.submitted("a", "b")
    folder.ran("a", RUNNING, FINISHED, begun=110)
    folder.ran("b", STARTING, FAILED, begun=210, failure=GAVE_WAY)
    assert folder.tokens() == ("b", "b")


@pytest.mark.parametrize("old", [RUNNING, STOPPED, FINISHED, FAILED])
@pytest.mark.parametrize("wrong_by", [-5000, 0, 5000])
def test_a_run_of_an_older_submit_is_older_whatever_its_clock_says(folder: Folder, old: str, wrong_by: int) -> None:
    folder.submitted("a", "b")
    folder.ran("a", old, begun=110 + wrong_by, failure=a_failure(helps=False) if old == FAILED else None)
    assert folder.tokens() == (None, "b")
    folder.ran("b", STARTING, RUNNING, begun=210)
    assert folder.tokens() == ("b", "b")
    folder.ran("b", STARTING, RUNNING, FINISHED, begun=210)
    assert folder.tokens() == ("b", "b")


@pytest.mark.parametrize("wrong_by", [-5000, 5000])
def test_a_driver_that_was_refused_does_not_hide_the_other_one_whose_clock_is_wrong(
    folder: Folder, wrong_by: int
) -> None:
    folder.submitted("a", "b")
    folder.ran("a", RUNNING, begun=110 + wrong_by)
    folder.ran("b", STARTING, FAILED, begun=210, failure=GAVE_WAY)
    assert folder.tokens() == ("a", "a")


def test_a_driver_that_was_started_by_hand_after_the_last_submit_counts(folder: Folder) -> None:
    folder.submitted("a")
    folder.ran("by-hand", RUNNING, begun=300)
    assert folder.tokens() == ("by-hand", None)
    folder.ran("a", RUNNING, STOPPED, begun=110)
    assert folder.tokens() == ("by-hand", None)


def test_a_driver_that_was_started_by_hand_before_the_last_submit_does_not_count(folder: Folder) -> None:
    folder.submitted("a")
    folder.ran("by-hand", RUNNING, begun=50)
    assert folder.tokens() == (None, "a")
    folder.ran("a", RUNNING, STOPPED, begun=110)
    assert folder.tokens() == ("a", "a")


@pytest.fixture
def two_drivers(world: Deployment) -> Deployment:
    """The first one runs; the second one slipped through and has given way to it."""
    world.control().submit()
    first = world.token
    world.says("STARTING", "RUNNING", token=first)
    own = intent_of(world)
    write_intent(world.files, replace(own, token="second", time=now(), number=own.number + 1, handle=None))
    world.says("STARTING", "FAILED", token="second", failure=GAVE_WAY)
    world.runner.drivers["second"] = DriverState(ENDED, "exit code 1", 1)
    return world


def test_a_stream_whose_second_driver_was_refused_runs_on_and_is_not_restarted(two_drivers: Deployment) -> None:
    status = two_drivers.control().status()
    assert (status.state, status.token) == ("RUNNING", two_drivers.token)
    assert two_drivers.control().plan_resume(status).action == "none"


def test_a_kill_reaches_the_driver_that_lives_and_not_the_one_that_was_refused(two_drivers: Deployment) -> None:
    two_drivers.control().kill()
    assert two_drivers.runner.killed == [two_drivers.token]
    assert two_drivers.control().status().state == "STOPPED"


def test_a_stop_request_is_for_the_driver_that_lives(two_drivers: Deployment) -> None:
    status = two_drivers.control().request_stop("maintenance")
    assert (status.state, status.stop and status.stop["token"]) == ("RUNNING", two_drivers.token)
