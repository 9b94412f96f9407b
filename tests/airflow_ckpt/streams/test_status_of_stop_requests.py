"""Which stop request is still to be obeyed, and what the status says of one that was."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.streams.status import FAILED, IDLE, NEW, STARTING, STOPPED
from airflow_ckpt.streams.status_rules import pending_stop
from ckpt_stream.protocol.run_files.run_record import RunRecord
from tests.airflow_ckpt.streams.status_samples import ENDED, LIVES, START_TIMEOUT, UNKNOWN, WINDOW, status
from tests.airflow_ckpt.supervision.samples import a_checkpoint, a_lag, a_run, an_intent, text

pytestmark = pytest.mark.unit


def request(when: float, run: str | None = None) -> dict[str, Any]:
    return {"by": "bob", "time": text(when), "run": run, "token": None, "reason": ""}


def test_a_stream_that_was_never_started_has_no_stop_to_obey() -> None:
    found = status(10, stop=request(5))
    assert (found.state, found.stop) == (NEW, None)


def restarted() -> RunRecord:
    return a_run(("STARTING", 20), ("RUNNING", 30), heartbeat=40)


def test_a_stop_outlives_the_restart_that_it_crossed() -> None:
    """It named the run before, and was written before the driver of this one began: a restart withdraws no stop."""
    found = status(40, stop=request(5, "the run before"), run=restarted(), intent=an_intent(), driver=LIVES)
    assert found.stop == request(5, "the run before")
    broken = a_run(("STARTING", 20), ("RUNNING", 30), ("FAILED", 40))
    seen: dict[str, Any] = {"run": broken, "intent": an_intent(), "driver": ENDED}
    assert (status(50, **seen).state, status(50, **seen, stop=request(5, "the run before")).state) == (FAILED, STOPPED)


def test_a_stop_from_before_a_start_by_hand_is_none() -> None:
    assert pending_stop(request(5, "the run before"), restarted(), None) is None
    assert pending_stop(request(25), restarted(), None) == request(25)


@pytest.mark.parametrize(("when", "named"), [(5, False), (25, True)])
def test_the_reason_names_the_user_whose_request_was_for_this_run_only(when: float, named: bool) -> None:
    found = status(50, run=a_run(("STARTING", 20), ("RUNNING", 30), ("STOPPED", 40)), stop=request(when, "another"))
    assert (found.state, found.stop, "bob" in found.reason) == (STOPPED, None, named)


def test_a_driver_that_was_killed_while_it_started_is_stopped_although_it_cannot_be_seen() -> None:
    """Without the note of the kill it would count as starting until its time is up."""
    run = a_run(("STARTING", 0))
    seen: dict[str, Any] = {"run": run, "driver": UNKNOWN}
    killed = an_intent(killed={"by": "ann", "time": text(5)})
    now = START_TIMEOUT - 1
    assert (status(now, **seen, intent=killed).state, status(now, **seen, intent=an_intent()).state) == (
        STOPPED,
        STARTING,
    )


def test_a_watch_is_not_stalled_before_a_heartbeat_counts_as_missed() -> None:
    """A short `stall_after` must not end a driver whose heartbeats are further apart than that."""
    late = WINDOW + 10
    run = a_run(("STARTING", 0), ("RUNNING", 10), heartbeat=20, heartbeat_seconds=WINDOW, idle=text(20))
    found = status(20 + late, run=run, intent=an_intent(), driver=LIVES, checkpoint=a_checkpoint(), lag=a_lag(0))
    assert found.state == IDLE


@pytest.mark.parametrize(
    ("last", "now", "stopping"),
    [(("RUNNING", 30), 40, True), (("RUNNING", 30), 40 + 10 * WINDOW, True), (("STOPPED", 40), 50, False)],
    ids=["running", "stalled", "stopped"],
)
def test_only_a_driver_that_lives_is_stopping(last: tuple[str, float], now: float, stopping: bool) -> None:
    run = a_run(("STARTING", 20), last, heartbeat=40, stopping=True)
    assert status(now, run=run, intent=an_intent(), driver=LIVES if stopping else ENDED).stopping is stopping
