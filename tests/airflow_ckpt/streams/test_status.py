"""One status out of run record, checkpoint, driver and Kafka; only a positive sign ends well."""

from __future__ import annotations

import json
import os
import socket
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.runners import base
from airflow_ckpt.runners.base import DriverState
from airflow_ckpt.runners.submit import LONGEST_SUBMIT_S, SETTLE_S, SUBMIT_TIMEOUT_S
from airflow_ckpt.streams.status import (
    FAILED,
    FINISHED,
    IDLE,
    LOST,
    NEW,
    RUNNING,
    STALLED,
    STARTING,
    STOPPED,
    Observation,
    StreamStatus,
    derive,
)
from ckpt_stream.lease import boot_id, process_started
from ckpt_stream.run_record import RunRecord
from tests.airflow_ckpt.streams.samples import (
    a_batch,
    a_checkpoint,
    a_failure,
    a_lag,
    a_run,
    a_status,
    a_stream,
    an_intent,
    at,
    text,
)

pytestmark = pytest.mark.unit

#: Of the stream that every test here looks at.
WINDOW, START_TIMEOUT = 60, 300
STREAM = a_stream(stall_after=timedelta(seconds=WINDOW), start_timeout=timedelta(seconds=START_TIMEOUT))

LIVES = DriverState(base.RUNNING, "process 7", url="/var/log/driver.log")
WAITS = DriverState(base.WAITING, "ACCEPTED by YARN")
ENDED = DriverState(base.ENDED, "exit code 1", 1, ended_at=at(30).timestamp())
ENDED_WITH_ZERO = DriverState(base.ENDED, "exit code 0", 0, ended_at=at(30).timestamp())
VANISHED = DriverState(base.VANISHED, "process 7 is gone and left no exit status")
UNKNOWN = DriverState(base.UNKNOWN, "it runs on another machine")
#: Heartbeats come every 5 seconds, and six missed ones mean death.
DEAD_AFTER = 30


def status(now: float, **seen: Any) -> StreamStatus:
    return derive(STREAM, Observation(at(now), **seen))


def running(now: float, **values: Any) -> RunRecord:
    """A run that runs since second 10 and was heard of just now."""
    return a_run(("STARTING", 0), ("RUNNING", 10), **{"heartbeat": now, **values})


# --- before a run record ----------------------------------------------------------------------------------------------


def test_a_stream_that_nobody_started_is_new() -> None:
    found = status(0)
    assert (found.state, found.run, found.token, found.broken_since) == (NEW, None, None, None)


def test_a_submit_without_an_answer_is_starting_while_spark_submit_may_be_on_its_way() -> None:
    assert LONGEST_SUBMIT_S > SUBMIT_TIMEOUT_S + SETTLE_S, "a submit that is under way would be made twice"
    found = status(LONGEST_SUBMIT_S - 1, intent=an_intent())
    assert (found.state, found.token) == (STARTING, "t1")
    assert "dag.submit run" in found.reason


def test_a_submit_without_an_answer_and_without_a_driver_is_lost_after_a_while() -> None:
    found = status(LONGEST_SUBMIT_S + 1, intent=an_intent())
    assert (found.state, found.broken_since) == (LOST, text(0))


def test_a_submit_that_failed_is_failed_with_its_words_and_its_time() -> None:
    failed = {"message": "spark-submit: no such queue", "time": text(7)}
    found = status(8, intent=an_intent(failed=failed))
    assert (found.state, found.reason, found.broken_since) == (FAILED, "spark-submit: no such queue", text(7))


@pytest.mark.parametrize("driver", [LIVES, WAITS])
def test_a_submit_that_was_called_failed_although_its_driver_lives_is_starting(driver: DriverState) -> None:
    """Whoever resumed it would start a second driver."""
    failed = {"message": "spark-submit did not answer in time", "time": text(7)}
    assert status(8, intent=an_intent(failed=failed), driver=driver).state == STARTING


@pytest.mark.parametrize("driver", [ENDED, ENDED_WITH_ZERO])
def test_a_driver_that_ended_before_its_first_word_has_failed_whatever_its_exit_code(driver: DriverState) -> None:
    found = status(40, intent=an_intent(), driver=driver)
    assert (found.state, found.broken_since) == (FAILED, text(30))
    assert driver.detail in found.reason


def test_a_driver_that_ended_before_its_first_word_at_an_unknown_time_has_failed_since_its_submit() -> None:
    found = status(40, intent=an_intent(), driver=DriverState(base.ENDED, "FINISHED, SUCCEEDED", 0))
    assert (found.state, found.broken_since) == (FAILED, text(0))


def test_a_driver_that_vanished_before_its_first_word_is_lost() -> None:
    found = status(40, intent=an_intent(), driver=VANISHED)
    assert (found.state, found.broken_since) == (LOST, text(0))
    assert VANISHED.detail in found.reason


@pytest.mark.parametrize("driver", [None, ENDED, VANISHED])
def test_a_driver_that_was_killed_on_request_before_its_first_word_is_stopped(driver: DriverState | None) -> None:
    found = status(40, intent=an_intent(killed={"by": "ann", "time": text(20)}), driver=driver)
    assert (found.state, found.broken_since) == (STOPPED, None)
    assert "ann" in found.reason


def test_a_driver_that_was_to_be_killed_and_lives_is_not_stopped() -> None:
    assert status(40, intent=an_intent(killed={"by": "ann", "time": text(20)}), driver=LIVES).state == STARTING


@pytest.mark.parametrize("driver", [LIVES, WAITS])
def test_a_driver_that_lives_and_has_written_no_run_record_is_starting_and_then_stalled(driver: DriverState) -> None:
    assert status(START_TIMEOUT, intent=an_intent(), driver=driver).state == STARTING
    late = status(START_TIMEOUT + 1, intent=an_intent(), driver=driver)
    assert (late.state, late.broken_since) == (STALLED, text(0))


def test_a_driver_that_cannot_be_seen_is_given_its_time_to_start_and_is_lost_then() -> None:
    assert status(START_TIMEOUT, intent=an_intent(), driver=UNKNOWN).state == STARTING
    assert status(START_TIMEOUT + 1, intent=an_intent(), driver=UNKNOWN).state == LOST


# --- a run that says it lives ------------------------------------------------------------------------------------------


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
    assert "7 records wait" in found.reason


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


def test_a_batch_hangs_counted_from_the_moment_it_was_planned() -> None:
    planned = 5000
    checkpoint = a_checkpoint(4, in_doubt=5, batch_timestamp_ms=int(at(planned).timestamp() * 1000))
    seen: dict[str, Any] = {"driver": LIVES, "checkpoint": checkpoint, "lag": a_lag(1)}
    assert status(planned + WINDOW, run=running(planned + WINDOW), **seen).state == RUNNING
    found = status(planned + WINDOW + 1, run=running(planned + WINDOW + 1), **seen)
    assert (found.state, found.broken_since) == (STALLED, text(planned))


def test_commits_of_an_earlier_run_do_not_make_a_fresh_one_stall() -> None:
    checkpoint = a_checkpoint(batch_timestamp_ms=int(at(-9999).timestamp() * 1000))
    assert status(20, run=running(20), checkpoint=checkpoint, lag=a_lag(5)).state == RUNNING


def test_a_batch_that_hangs_stalls_the_run_even_if_no_input_waits_behind_it() -> None:
    found = status(11 + WINDOW, run=running(11 + WINDOW), checkpoint=a_checkpoint(4, in_doubt=5), lag=a_lag(0))
    assert found.state == STALLED
    assert "batch 5 hangs" in found.reason


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


def test_a_heart_that_beats_does_not_hide_a_driver_that_hangs() -> None:
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
    assert "has not moved" in found.reason


def test_a_run_on_this_machine_is_lost_as_soon_as_its_process_is_gone() -> None:
    driver = {"host": socket.gethostname(), "boot": boot_id(), "pid": 2**22 + 1, "started": 1.0}
    assert status(20, run=running(20, driver=driver), lag=a_lag(0)).state == LOST


def test_a_run_on_this_machine_without_a_runner_is_not_lost_while_its_process_lives() -> None:
    pid = os.getpid()
    driver = {"host": socket.gethostname(), "boot": boot_id(), "pid": pid, "started": process_started(pid)}
    assert status(20 + DEAD_AFTER + 1, run=running(20, driver=driver), lag=a_lag(0)).state == IDLE


# --- a run that has ended ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [FINISHED, STOPPED])
@pytest.mark.parametrize("driver", [None, ENDED, VANISHED, UNKNOWN])
def test_a_run_that_ended_well_is_never_stalled_or_lost_however_old(state: str, driver: DriverState | None) -> None:
    run = a_run(("STARTING", 0), ("RUNNING", 10), (state, 20))
    seen: dict[str, Any] = {"checkpoint": a_checkpoint(4, in_doubt=5), "lag": a_lag(99), "kafka_error": "away"}
    found = status(10**7, intent=an_intent(), run=run, driver=driver, **seen)
    assert (found.state, found.broken_since) == (state, None)


@pytest.mark.parametrize("helps", [True, False])
def test_a_run_that_failed_keeps_its_reason_its_time_and_whether_a_restart_may_help(helps: bool) -> None:
    run = a_run(("STARTING", 0), ("FAILED", 20), failure=a_failure("LedgerLost", "batch 3 is not there", helps=helps))
    found = status(99, intent=an_intent(), run=run, driver=ENDED)
    assert (found.state, found.reason) == (FAILED, "LedgerLost: batch 3 is not there")
    assert (found.restart_may_help, found.broken_since) == (helps, text(20))
    assert found.failure is not None
    assert found.failure["error"] == "LedgerLost"


def test_a_run_that_failed_without_a_reason_may_be_restarted() -> None:
    found = status(99, run=a_run(("STARTING", 0), ("FAILED", 20)))
    assert (found.state, found.restart_may_help, found.broken_since) == (FAILED, True, text(20))


def test_a_run_without_any_intent_is_judged_by_itself() -> None:
    assert status(20, run=running(20), lag=a_lag(1)).state == RUNNING


# --- numbers -----------------------------------------------------------------------------------------------------------


def test_lag_is_the_sum_of_the_records_and_the_age_of_the_oldest_one() -> None:
    lag = (*a_lag(5, seconds=3.0), *a_lag(7, seconds=11.5), *a_lag(0, seconds=0.0))
    found = status(20, run=running(20), lag=lag)
    assert (found.lag_records, found.lag_seconds, len(found.partitions)) == (12, 11.5, 3)


def test_drained_means_no_lag_and_no_batch_in_doubt() -> None:
    assert a_status(lag_records=0).drained
    assert not a_status(lag_records=0, in_doubt=5).drained
    assert not a_status(lag_records=None).drained
    assert not a_status(lag_records=1).drained


def test_the_rate_is_that_of_the_last_batches_that_had_rows() -> None:
    old = a_batch(0, ended=0, rows=10**6, millis=1)
    batches = [old, *(a_batch(n, ended=n, rows=100, millis=500) for n in range(1, 5)), a_batch(5, ended=5, rows=0)]
    assert status(20, run=running(20, batches=batches)).rows_per_second == 200.0
    assert status(20, run=running(20)).rows_per_second is None


def test_the_age_of_the_last_commit_comes_from_the_run_or_from_the_checkpoint() -> None:
    assert status(50, run=running(50, batches=[a_batch(4, ended=38)])).age_seconds == 12.0
    checkpoint = a_checkpoint(batch_timestamp_ms=int(at(-10).timestamp() * 1000))
    assert status(50, checkpoint=checkpoint).age_seconds == 60.0
    assert status(50, checkpoint=a_checkpoint(None)).age_seconds is None


def test_a_status_shows_where_to_look_and_is_plain_json() -> None:
    run = running(20, spark={"ui": "http://driver:4040"}, totals={"batches": 3})
    intent = an_intent(handle={"kind": "process", "id": "7", "token": "t1"})
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {"0": 95}})
    found = status(20, intent=intent, run=run, driver=LIVES, checkpoint=checkpoint, lag=a_lag(5))
    assert (found.ui, found.log, found.batches_in_run) == ("http://driver:4040", "/var/log/driver.log", 3)
    assert found.driver == {"kind": "process", "id": "7", "token": "t1"}
    again = json.loads(json.dumps(found.as_dict()))
    assert again["offsets"] == {"orders_in": {"0": 95}}
    assert StreamStatus(**{**again, "partitions": ()}).line() == found.line()


def test_the_line_for_the_log_tells_batch_age_rate_and_lag() -> None:
    line = a_status(batch=7, age_seconds=3.2, rows_per_second=1234.5, lag_records=12345, lag_seconds=61.0).line()
    assert line == "orders is RUNNING, batch 7 committed, 3.2 s ago, 1,234 rows/s, lag 12,345 (1 min 1 s)"


# --- all of it ---------------------------------------------------------------------------------------------------------

STATES = (NEW, STARTING, RUNNING, IDLE, STALLED, FAILED, LOST, STOPPED, FINISHED)
seconds = st.integers(0, 1000)
note = st.none() | st.just({"by": "ann", "message": "no", "time": text(5)})


@st.composite
def runs(draw: st.DrawFn) -> RunRecord:
    path = draw(st.sampled_from([["STARTING"], ["STARTING", "RUNNING"]]))
    path = [*path, *draw(st.sampled_from([[], ["FAILED"], ["STOPPED"], ["FINISHED"]]))]
    times = sorted(draw(st.lists(seconds, min_size=len(path), max_size=len(path))))
    failure = draw(st.none() | st.builds(a_failure, helps=st.booleans())) if path[-1] == "FAILED" else None
    token = draw(st.sampled_from(["t0", "t1"]))
    batches = [a_batch(n, ended=times[-1]) for n in range(draw(st.integers(0, 2)))]
    beat = draw(seconds)
    states = list(zip(path, times, strict=True))
    return a_run(*states, token=token, heartbeat=beat, failure=failure, batches=batches)


def stop_request(when: float, token: str) -> dict[str, Any]:
    return {"by": "ann", "time": text(when), "token": token}


observations = st.builds(
    Observation,
    now=seconds.map(lambda s: at(s + 1000)),
    intent=st.none() | st.builds(an_intent, when=seconds, killed=note, failed=note),
    run=st.none() | runs(),
    checkpoint=st.none() | st.builds(a_checkpoint, st.none() | st.just(4), st.none() | st.just(5)),
    driver=st.none() | st.builds(DriverState, st.sampled_from([*base.LIVE, base.ENDED, base.VANISHED, base.UNKNOWN])),
    lag=st.none() | st.builds(a_lag, st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)),
    kafka_error=st.sampled_from(["", "away"]),
    stop=st.none() | st.builds(stop_request, seconds, st.sampled_from(["t0", "t1"])),
)


@settings(max_examples=300, deadline=None)
@given(observations)
def test_a_stream_has_one_of_nine_states_and_ends_well_only_by_a_positive_sign(seen: Observation) -> None:
    found = derive(STREAM, seen)
    assert found.state in STATES
    said_so = seen.run is not None and seen.run.state == found.state
    killed = found.state == STOPPED and seen.intent is not None and seen.intent.killed is not None
    asked = found.state == STOPPED and seen.stop is not None and found.stop == seen.stop
    assert found.state not in (STOPPED, FINISHED) or said_so or killed or asked
    assert (found.broken_since is not None) == (found.state in (FAILED, LOST, STALLED))
    assert found.line()
