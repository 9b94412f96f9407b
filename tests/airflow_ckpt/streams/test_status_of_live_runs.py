"""The status of a run whose record says that it lives: starting, running, idle, stalled, or lost after all."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.streams.driver_state import DriverState
from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.status import (
    IDLE,
    LOST,
    RUNNING,
    STALLED,
    STARTING,
    STOPPED,
)
from tests.airflow_ckpt.streams.status_samples import (
    DEAD_AFTER,
    ENDED,
    ENDED_WITH_ZERO,
    LIVES,
    START_TIMEOUT,
    UNKNOWN,
    VANISHED,
    WINDOW,
    running,
    status,
)
from tests.airflow_ckpt.supervision.samples import (
    a_batch,
    a_checkpoint,
    a_lag,
    a_run,
    an_intent,
    at,
    text,
)

pytestmark = pytest.mark.unit


def test_a_run_that_starts_is_starting_and_stalled_when_that_takes_too_long() -> None:
    young = a_run(("STARTING", 0), heartbeat=START_TIMEOUT)
    assert status(START_TIMEOUT, run=young).state == STARTING
    old = status(START_TIMEOUT + 1, run=a_run(("STARTING", 0), heartbeat=START_TIMEOUT + 1))
    assert (old.state, old.broken_since) == (STALLED, text(0))


def test_a_run_with_input_and_recent_commits_is_running() -> None:
    run = running(100, batches=[a_batch(4, ended=90)])
    found = status(100, intent=an_intent(), run=run, driver=LIVES, checkpoint=a_checkpoint(), lag=a_lag(5, 0))
    assert (found.state, found.reason, found.lag_records, found.broken_since) == (RUNNING, "", 5, None)


def test_a_run_without_input_is_idle_however_long_ago_its_last_commit_was() -> None:
    found = status(9999, run=running(9999), driver=LIVES, checkpoint=a_checkpoint(), lag=a_lag(0, 0))
    assert (found.state, found.lag_records) == (IDLE, 0)


def test_a_batch_in_doubt_is_work_and_not_idleness() -> None:
    assert status(20, run=running(20), checkpoint=a_checkpoint(4, in_doubt=5), lag=a_lag(0)).state == RUNNING


def test_a_lag_that_is_not_known_of_every_partition_is_not_idle() -> None:
    found = status(20, run=running(20), checkpoint=a_checkpoint(), lag=a_lag(0, None))
    assert (found.state, found.lag_records) == (RUNNING, None)


def test_a_lag_that_was_not_asked_for_is_not_idle() -> None:
    assert status(20, run=running(20), checkpoint=a_checkpoint()).state == RUNNING


def test_a_run_with_waiting_input_is_stalled_only_after_the_window() -> None:
    moved = 100
    run = running(moved + WINDOW, batches=[a_batch(4, ended=moved)])
    assert status(moved + WINDOW, run=run, checkpoint=a_checkpoint(), lag=a_lag(5)).state == RUNNING
    run.heartbeat = text(moved + WINDOW + 1)
    found = status(moved + WINDOW + 1, run=run, checkpoint=a_checkpoint(), lag=a_lag(5, 2))
    assert (found.state, found.broken_since) == (STALLED, text(moved))
    assert "7 records" in found.reason


def test_a_run_without_a_commit_yet_is_stalled_counted_from_the_moment_it_ran() -> None:
    assert status(10 + WINDOW, run=running(10 + WINDOW), lag=a_lag(5)).state == RUNNING
    found = status(11 + WINDOW, run=running(11 + WINDOW), lag=a_lag(5))
    assert (found.state, found.broken_since) == (STALLED, text(10))


def test_input_that_has_just_come_to_a_stream_that_was_idle_for_long_does_not_stall_it() -> None:
    came = 5000
    seen: dict[str, Any] = {"driver": LIVES, "checkpoint": a_checkpoint(), "lag": a_lag(1)}
    values: dict[str, Any] = {"batches": [a_batch(4, ended=20)], "idle": text(came)}
    assert status(came + WINDOW, run=running(came + WINDOW, **values), **seen).state == RUNNING
    found = status(came + WINDOW + 1, run=running(came + WINDOW + 1, **values), **seen)
    assert (found.state, found.broken_since) == (STALLED, text(came))


def test_a_batch_is_overdue_counted_from_the_moment_it_was_planned() -> None:
    planned = 5000
    checkpoint = a_checkpoint(4, in_doubt=5, batch_timestamp_ms=int(at(planned).timestamp() * 1000))
    seen: dict[str, Any] = {"driver": LIVES, "checkpoint": checkpoint, "lag": a_lag(1)}
    assert status(planned + WINDOW, run=running(planned + WINDOW), **seen).state == RUNNING
    found = status(planned + WINDOW + 1, run=running(planned + WINDOW + 1), **seen)
    assert (found.state, found.broken_since) == (STALLED, text(planned))


def test_commits_of_an_earlier_run_do_not_make_a_fresh_one_stall() -> None:
    checkpoint = a_checkpoint(batch_timestamp_ms=int(at(-9999).timestamp() * 1000))
    assert status(20, run=running(20), checkpoint=checkpoint, lag=a_lag(5)).state == RUNNING


def test_an_overdue_batch_stalls_the_run_even_if_no_input_waits_behind_it() -> None:
    found = status(11 + WINDOW, run=running(11 + WINDOW), checkpoint=a_checkpoint(4, in_doubt=5), lag=a_lag(0))
    assert found.state == STALLED
    assert "batch 5" in found.reason


def test_a_run_whose_kafka_is_away_is_stalled_after_the_window_and_says_so() -> None:
    error = "Kafka does not answer"
    early = status(20, run=running(20), checkpoint=a_checkpoint(), kafka_error=error)
    assert (early.state, early.reason) == (RUNNING, error)
    late = status(11 + WINDOW, run=running(11 + WINDOW), checkpoint=a_checkpoint(), kafka_error=error)
    assert late.state == STALLED
    assert error in late.reason


@pytest.mark.parametrize("driver", [ENDED, ENDED_WITH_ZERO, VANISHED])
def test_a_driver_that_ended_while_its_run_says_it_lives_is_lost_even_with_exit_code_0(driver: DriverState) -> None:
    found = status(40, intent=an_intent(), run=running(29), driver=driver, lag=a_lag(0))
    assert (found.state, found.broken_since) == (LOST, text(29))
    assert driver.detail in found.reason


def test_a_driver_killed_on_request_while_its_run_says_it_lives_is_stopped() -> None:
    intent = an_intent(killed={"by": "ann", "time": text(28)})
    found = status(40, intent=intent, run=running(29), driver=ENDED)
    assert (found.state, found.broken_since) == (STOPPED, None)
    assert "ann" in found.reason


def test_a_kill_on_request_that_has_not_worked_yet_is_not_stopped() -> None:
    intent = an_intent(killed={"by": "ann", "time": text(28)})
    assert status(40, intent=intent, run=running(29), driver=LIVES, lag=a_lag(3)).state == RUNNING


@pytest.mark.parametrize("driver", [None, UNKNOWN])
def test_missed_heartbeats_mean_lost_when_the_driver_cannot_be_seen(driver: DriverState | None) -> None:
    seen: dict[str, Any] = {"intent": an_intent(), "driver": driver, "run": running(20), "lag": a_lag(3)}
    assert status(20 + DEAD_AFTER, **seen).state == RUNNING
    found = status(20 + DEAD_AFTER + 1, **seen)
    assert (found.state, found.broken_since) == (LOST, text(20))


def test_missed_heartbeats_do_not_mean_lost_while_the_driver_is_seen_alive() -> None:
    seen: dict[str, Any] = {"intent": an_intent(), "driver": LIVES, "run": running(20), "lag": a_lag(0)}
    assert status(20 + DEAD_AFTER + 1, **seen).state == IDLE


def test_a_driver_that_was_to_be_killed_and_is_silent_where_it_cannot_be_seen_is_stopped_and_not_lost() -> None:
    seen: dict[str, Any] = {"intent": an_intent(killed={"by": "ann", "time": text(18)}), "driver": UNKNOWN}
    assert status(20 + DEAD_AFTER, run=running(20), lag=a_lag(3), **seen).state == RUNNING
    found = status(20 + DEAD_AFTER + 1, run=running(20), lag=a_lag(3), **seen)
    assert (found.state, "ann" in found.reason) == (STOPPED, True)


@pytest.mark.parametrize("driver", [None, UNKNOWN])
@pytest.mark.parametrize("beat", [0, START_TIMEOUT + 1])
def test_a_driver_elsewhere_is_given_its_time_to_start_before_its_silence_means_anything(
    driver: DriverState | None, beat: int
) -> None:
    run = a_run(("STARTING", 0), heartbeat=beat)
    seen: dict[str, Any] = {"intent": an_intent(), "driver": driver, "run": run}
    assert status(START_TIMEOUT, **seen).state == STARTING
    assert status(START_TIMEOUT + 1, **seen).state == (STALLED if beat else LOST)


def test_a_driver_that_is_gone_while_it_starts_is_lost_at_once() -> None:
    run = a_run(("STARTING", 0))
    assert status(5, intent=an_intent(), run=run, driver=VANISHED).state == LOST


def test_heartbeats_do_not_hide_a_driver_whose_query_makes_no_progress() -> None:
    """Its process lives, and its watch has not gone round since second 20."""
    seen: dict[str, Any] = {"intent": an_intent(), "driver": LIVES, "lag": a_lag(0)}
    well = status(20 + WINDOW, run=running(20 + WINDOW, watched=text(20)), **seen)
    assert well.state == IDLE
    hangs = status(21 + WINDOW, run=running(21 + WINDOW, watched=text(20)), **seen)
    assert (hangs.state, hangs.broken_since) == (STALLED, text(20))


def test_a_driver_that_lives_without_a_heartbeat_for_longer_than_the_window_is_stalled() -> None:
    seen: dict[str, Any] = {"intent": an_intent(), "driver": LIVES, "run": running(20), "lag": a_lag(0)}
    found = status(20 + WINDOW + 1, **seen)
    assert (found.state, found.broken_since) == (STALLED, text(20))
    assert in_words(WINDOW + 1) in found.reason


def test_a_run_on_this_machine_is_lost_as_soon_as_its_process_is_gone() -> None:
    assert status(20, run=running(20), process_lives=False, lag=a_lag(0)).state == LOST


def test_a_run_on_this_machine_without_a_runner_is_not_lost_while_its_process_lives() -> None:
    assert status(20 + DEAD_AFTER + 1, run=running(20), process_lives=True, lag=a_lag(0)).state == IDLE
