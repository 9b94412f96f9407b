"""One status out of run record, checkpoint, driver and Kafka; only a positive sign ends well."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.streams import driver_state
from airflow_ckpt.streams import status as states
from airflow_ckpt.streams.driver_state import DriverState
from airflow_ckpt.streams.observation import Observation, SourcePosition
from airflow_ckpt.streams.status_rules import derive
from airflow_ckpt.streams.submit_intent import LATE_REQUEST_SECONDS, LONGEST_SUBMIT_SECONDS, SUBMIT_TIMEOUT_SECONDS
from ckpt_stream.protocol.run_files.run_record import RunRecord
from tests.airflow_ckpt.streams.status_samples import (
    ENDED,
    ENDED_WITH_ZERO,
    LIVES,
    START_TIMEOUT,
    STREAM,
    UNKNOWN,
    VANISHED,
    WAITS,
    running,
    status,
)
from tests.airflow_ckpt.supervision.samples import (
    a_batch,
    a_checkpoint,
    a_failure,
    a_lag,
    a_run,
    a_status,
    an_intent,
    at,
    text,
)

pytestmark = pytest.mark.unit


# --- before a run record ----------------------------------------------------------------------------------------------


def test_a_stream_that_was_never_started_is_new() -> None:
    found = status(0)
    assert (found.state, found.run, found.token, found.broken_since) == (states.NEW, None, None, None)


def test_a_submit_without_an_answer_is_starting_while_spark_submit_may_be_on_its_way() -> None:
    assert LONGEST_SUBMIT_SECONDS > SUBMIT_TIMEOUT_SECONDS + LATE_REQUEST_SECONDS, (
        "a submit under way would be made twice"
    )
    found = status(LONGEST_SUBMIT_SECONDS - 1, intent=an_intent())
    assert (found.state, found.token) == (states.STARTING, "t1")
    assert "dag.submit run" in found.reason


def test_a_submit_without_an_answer_and_without_a_driver_is_lost_after_a_while() -> None:
    found = status(LONGEST_SUBMIT_SECONDS + 1, intent=an_intent())
    assert (found.state, found.broken_since) == (states.LOST, text(0))


def test_a_submit_that_failed_is_failed_with_its_words_and_its_time() -> None:
    failed = {"message": "QueueMissing", "time": text(7)}
    found = status(8, intent=an_intent(failed=failed))
    assert (found.state, found.reason, found.broken_since) == (states.FAILED, failed["message"], text(7))


@pytest.mark.parametrize("driver", [LIVES, WAITS])
def test_a_submit_that_was_called_failed_although_its_driver_lives_is_starting(driver: DriverState) -> None:
    """A resume would start a second driver."""
    failed = {"message": "spark-submit did not answer in time", "time": text(7)}
    assert status(8, intent=an_intent(failed=failed), driver=driver).state == states.STARTING


@pytest.mark.parametrize("driver", [ENDED, ENDED_WITH_ZERO])
def test_a_driver_that_ended_before_its_first_word_has_failed_whatever_its_exit_code(driver: DriverState) -> None:
    found = status(40, intent=an_intent(), driver=driver)
    assert (found.state, found.broken_since) == (states.FAILED, text(30))
    assert driver.detail in found.reason


def test_a_driver_that_ended_before_its_first_word_at_an_unknown_time_has_failed_since_its_submit() -> None:
    found = status(40, intent=an_intent(), driver=DriverState(driver_state.ENDED, "FINISHED, SUCCEEDED", 0))
    assert (found.state, found.broken_since) == (states.FAILED, text(0))


def test_a_driver_that_vanished_before_its_first_word_is_lost() -> None:
    found = status(40, intent=an_intent(), driver=VANISHED)
    assert (found.state, found.broken_since) == (states.LOST, text(0))
    assert VANISHED.detail in found.reason


@pytest.mark.parametrize("driver", [None, ENDED, VANISHED])
def test_a_driver_that_was_killed_on_request_before_its_first_word_is_stopped(driver: DriverState | None) -> None:
    found = status(40, intent=an_intent(killed={"by": "ann", "time": text(20)}), driver=driver)
    assert (found.state, found.broken_since) == (states.STOPPED, None)
    assert "ann" in found.reason


def test_a_driver_that_was_to_be_killed_and_lives_is_not_stopped() -> None:
    assert status(40, intent=an_intent(killed={"by": "ann", "time": text(20)}), driver=LIVES).state == states.STARTING


@pytest.mark.parametrize("driver", [LIVES, WAITS])
def test_a_driver_that_lives_and_has_written_no_run_record_is_starting_and_then_stalled(driver: DriverState) -> None:
    assert status(START_TIMEOUT, intent=an_intent(), driver=driver).state == states.STARTING
    late = status(START_TIMEOUT + 1, intent=an_intent(), driver=driver)
    assert (late.state, late.broken_since) == (states.STALLED, text(0))


def test_a_driver_that_cannot_be_seen_is_given_its_time_to_start_and_is_lost_then() -> None:
    assert status(START_TIMEOUT, intent=an_intent(), driver=UNKNOWN).state == states.STARTING
    assert status(START_TIMEOUT + 1, intent=an_intent(), driver=UNKNOWN).state == states.LOST


# --- a run that has ended ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [states.FINISHED, states.STOPPED])
@pytest.mark.parametrize("driver", [None, ENDED, VANISHED, UNKNOWN])
def test_a_run_that_ended_well_is_never_stalled_or_lost_however_old(state: str, driver: DriverState | None) -> None:
    run = a_run(("STARTING", 0), ("RUNNING", 10), (state, 20))
    seen: dict[str, Any] = {"checkpoint": a_checkpoint(4, in_doubt=5), "lag": a_lag(99), "kafka_error": "away"}
    found = status(10**7, intent=an_intent(), run=run, driver=driver, **seen)
    assert (found.state, found.broken_since) == (state, None)


@pytest.mark.parametrize("helps", [True, False])
def test_a_run_that_failed_keeps_its_reason_its_time_and_whether_a_restart_may_help(helps: bool) -> None:
    failure = a_failure("LedgerLost", "batch 3 is not there", helps=helps)
    run = a_run(("STARTING", 0), ("FAILED", 20), failure=failure)
    found = status(99, intent=an_intent(), run=run, driver=ENDED)
    assert (found.state, found.reason) == (states.FAILED, "LedgerLost: batch 3 is not there")
    assert (found.restart_may_help, found.broken_since) == (helps, text(20))
    assert found.failure is not None
    assert found.failure["error"] == "LedgerLost"


def test_a_run_that_failed_without_a_reason_may_be_restarted() -> None:
    found = status(99, run=a_run(("STARTING", 0), ("FAILED", 20)))
    assert (found.state, found.restart_may_help, found.broken_since) == (states.FAILED, True, text(20))


def test_a_run_without_any_intent_is_judged_by_itself() -> None:
    assert status(20, run=running(20), lag=a_lag(1)).state == states.RUNNING


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
    begun = replace(checkpoint, committed=None)
    assert status(50, checkpoint=begun).age_seconds is None, "a first batch that has begun is no commit"


def test_a_status_shows_where_to_look_and_is_plain_json() -> None:
    run = running(20, spark={"ui": "http://driver:4040"}, totals={"batches": 3})
    intent = an_intent(handle={"kind": "process", "id": "7", "token": "t1"})
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {"0": 95}})
    found = status(20, intent=intent, run=run, driver=LIVES, checkpoint=checkpoint, lag=a_lag(5))
    assert (found.ui, found.log, found.batches_in_run) == ("http://driver:4040", "/var/log/driver.log", 3)
    assert found.driver == {"kind": "process", "id": "7", "token": "t1"}
    again = json.loads(json.dumps(found.as_dict()))
    assert again["offsets"] == {"orders_in": {"0": 95}}
    assert states.StreamStatus(**{**again, "partitions": ()}).line() == found.line()


def test_the_line_for_the_log_tells_batch_age_rate_and_lag() -> None:
    line = a_status(batch=7, age_seconds=3.2, rows_per_second=1234.5, lag_records=12345, lag_seconds=61.0).line()
    assert line == "orders is RUNNING, batch 7 committed, 3.2 s ago, 1,234 rows/s, lag 12,345 (1 min 1 s)"


# --- all of it ---------------------------------------------------------------------------------------------------------

STATES = (
    states.NEW,
    states.STARTING,
    states.RUNNING,
    states.IDLE,
    states.STALLED,
    states.FAILED,
    states.LOST,
    states.STOPPED,
    states.FINISHED,
)
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
    driver=st.none()
    | st.builds(
        DriverState,
        st.sampled_from([*driver_state.LIVE, driver_state.ENDED, driver_state.VANISHED, driver_state.UNKNOWN]),
    ),
    position=st.builds(
        SourcePosition,
        checkpoint=st.none() | st.builds(a_checkpoint, st.none() | st.just(4), st.none() | st.just(5)),
        lag=st.none() | st.builds(a_lag, st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)),
        kafka_error=st.sampled_from(["", "away"]),
    ),
    stop=st.none() | st.builds(stop_request, seconds, st.sampled_from(["t0", "t1"])),
)


@settings(max_examples=300, deadline=None)
@given(observations)
def test_a_stream_has_one_of_nine_states_and_ends_well_only_by_a_positive_sign(seen: Observation) -> None:
    found = derive(STREAM, seen)
    assert found.state in STATES
    said_so = seen.run is not None and seen.run.state == found.state
    killed = found.state == states.STOPPED and seen.intent is not None and seen.intent.killed is not None
    asked = found.state == states.STOPPED and seen.stop is not None and found.stop == seen.stop
    assert found.state not in (states.STOPPED, states.FINISHED) or said_so or killed or asked
    assert (found.broken_since is not None) == (found.state in (states.FAILED, states.LOST, states.STALLED))
    assert found.line()
