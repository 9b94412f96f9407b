"""Restart strategies: Flink's names, defaults and decisions, from the restart history alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ckpt.exceptions import BadStream
from airflow_ckpt.streams.restart_strategies import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    PastRestart,
    RestartStrategy,
    strategy_from,
)
from tests.airflow_ckpt.supervision.samples import at

pytestmark = pytest.mark.unit

EXACT = ExponentialDelay(jitter=0)


def after(*seconds: float) -> list[PastRestart]:
    return [PastRestart(at(s)) for s in seconds]


def delays(strategy: RestartStrategy, failures: int, every: float = 1.0) -> list[float]:
    """The pauses of a stream that fails again right after each restart."""
    restarts: list[PastRestart] = []
    found: list[float] = []
    for number in range(failures):
        failed = at(number * every)
        decision = strategy.decide(restarts, failed)
        assert decision.allowed
        found.append(decision.delay.total_seconds())
        restarts.append(PastRestart(failed))
    return found


def test_the_defaults_are_those_of_flink() -> None:
    assert FixedDelay() == FixedDelay(attempts=1, delay=timedelta(seconds=1))
    assert FailureRate() == FailureRate(1, timedelta(minutes=1), timedelta(seconds=1))
    assert ExponentialDelay() == ExponentialDelay(
        initial_backoff=timedelta(seconds=1),
        max_backoff=timedelta(minutes=1),
        multiplier=1.5,
        reset_after=timedelta(hours=1),
        jitter=0.1,
        attempts=None,
    )


def test_the_names_are_those_of_flink() -> None:
    assert [s.type for s in (NoRestart, FixedDelay, FailureRate, ExponentialDelay)] == [
        "none",
        "fixed-delay",
        "failure-rate",
        "exponential-delay",
    ]


def test_without_restarts_the_first_failure_is_final() -> None:
    assert not NoRestart().decide([], at(0)).allowed


def test_a_fixed_delay_allows_so_many_restarts_and_not_one_more() -> None:
    strategy = FixedDelay(attempts=3, delay=timedelta(seconds=10))
    decisions = [strategy.decide(after(*range(used)), at(100)) for used in range(5)]
    assert [d.allowed for d in decisions] == [True, True, True, False, False]
    assert [d.delay for d in decisions[:3]] == [timedelta(seconds=10)] * 3
    assert [d.number for d in decisions] == [1, 2, 3, None, None]
    assert "2 of 3" in decisions[1].reason
    assert "3" in decisions[3].reason


def test_a_fixed_delay_never_forgets_a_restart_however_long_ago() -> None:
    assert not FixedDelay(attempts=1).decide(after(0), at(10**8)).allowed


def test_a_failure_rate_counts_only_the_restarts_within_its_interval() -> None:
    strategy = FailureRate(2, timedelta(seconds=60), timedelta(seconds=5))
    assert strategy.decide(after(0), at(59)).allowed
    assert not strategy.decide(after(0, 30), at(59)).allowed
    again = strategy.decide(after(0, 30), at(61))
    assert (again.allowed, again.delay, again.number) == (True, timedelta(seconds=5), 2)


def test_a_failure_rate_has_no_limit_in_the_long_run() -> None:
    restarts = after(*range(0, 61 * 1000, 61))
    assert FailureRate(1, timedelta(seconds=60)).decide(restarts, at(61 * 1000)).allowed


def test_an_exponential_delay_grows_to_its_maximum_and_stays_there() -> None:
    assert delays(EXACT, 5) == pytest.approx([1, 1.5, 2.25, 3.375, 5.0625])
    assert delays(EXACT, 30)[-1] == 60


def test_an_exponential_delay_never_gives_up_unless_it_was_told_to() -> None:
    assert delays(EXACT, 500)[-1] == 60
    limited = ExponentialDelay(attempts=2, jitter=0)
    assert [limited.decide(after(*range(n)), at(3)).allowed for n in range(4)] == [True, True, False, False]


def test_an_exponential_delay_is_short_again_after_a_healthy_time() -> None:
    strategy = ExponentialDelay(jitter=0, reset_after=timedelta(seconds=100))
    assert strategy.decide(after(0, 1, 2), at(101)).delay.total_seconds() == pytest.approx(1.5**3)
    assert strategy.decide(after(0, 1, 2), at(102)).delay == timedelta(seconds=1)


def test_a_healthy_time_between_two_restarts_forgets_those_before_it() -> None:
    strategy = ExponentialDelay(jitter=0, reset_after=timedelta(seconds=100))
    assert strategy.decide(after(0, 1, 2, 500), at(501)).delay == timedelta(seconds=1.5)
    limited = ExponentialDelay(attempts=3, reset_after=timedelta(seconds=100))
    assert not limited.decide(after(0, 1, 2), at(3)).allowed
    assert limited.decide(after(0, 1, 2, 500), at(501)).allowed


def test_the_jitter_is_the_same_for_one_failure_and_differs_between_failures() -> None:
    strategy = ExponentialDelay(initial_backoff=timedelta(seconds=10), jitter=0.5)
    assert strategy.decide([], at(1)) == strategy.decide([], at(1))
    assert len({strategy.decide([], at(s)).delay for s in range(20)}) == 20


@given(st.integers(0, 10**9), st.integers(0, 40), st.floats(0, 1))
def test_the_jitter_stays_within_its_share_and_below_the_maximum(moment: int, used: int, jitter: float) -> None:
    restarts = after(*(moment - 1 for _ in range(used)))
    plain = EXACT.decide(restarts, at(moment)).delay.total_seconds()
    found = ExponentialDelay(jitter=jitter).decide(restarts, at(moment)).delay.total_seconds()
    assert plain * (1 - jitter) - 1e-6 <= found <= min(60, plain * (1 + jitter)) + 1e-6


def test_the_jitter_goes_both_ways() -> None:
    strategy = ExponentialDelay(initial_backoff=timedelta(seconds=10), jitter=0.1)
    found = [strategy.decide([], at(s)).delay.total_seconds() for s in range(50)]
    assert min(found) < 9.5
    assert max(found) > 10.5


@pytest.mark.parametrize(
    "strategy",
    [
        NoRestart(),
        FixedDelay(3, timedelta(seconds=10)),
        FailureRate(5, timedelta(minutes=5), timedelta(milliseconds=1500)),
        ExponentialDelay(timedelta(seconds=2), timedelta(minutes=3), 2.0, timedelta(hours=2), 0.2, 7),
    ],
)
def test_a_strategy_is_the_same_after_a_round_trip_through_json_values(strategy: RestartStrategy) -> None:
    values = strategy.as_dict()
    assert all(isinstance(v, str | int | float | None) for v in values.values())
    assert strategy_from(values) == strategy


def test_times_may_be_written_as_text_or_seconds() -> None:
    assert FixedDelay(delay="10 seconds") == FixedDelay(delay=10) == FixedDelay(delay=timedelta(seconds=10))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (FixedDelay, {"attempts": 0}),
        (FixedDelay, {"attempts": True}),
        (FixedDelay, {"attempts": "3"}),
        (FixedDelay, {"delay": "soon"}),
        (FixedDelay, {"delay": timedelta(seconds=-1)}),
        (FailureRate, {"max_failures_per_interval": 0}),
        (ExponentialDelay, {"multiplier": 0.9}),
        (ExponentialDelay, {"jitter": 1.1}),
        (ExponentialDelay, {"jitter": -0.1}),
        (ExponentialDelay, {"attempts": 0}),
        (ExponentialDelay, {"max_backoff": timedelta(0)}),
    ],
)
def test_bad_values_are_refused_when_the_strategy_is_made(kind: Any, values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(BadStream, match=rf"{kind.__name__}\({name}\b"):
        kind(**values)


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadStream, match="none, fixed-delay, failure-rate, exponential-delay"):
        strategy_from({"type": "always"})


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadStream, match=r"\btries\b.*\battempts, delay\b"):
        strategy_from({"type": "fixed-delay", "tries": 3})


@pytest.mark.parametrize("delay", [timedelta(seconds=-1), "soon"])
def test_a_pause_that_is_no_duration_is_a_bad_declaration(delay: Any) -> None:
    with pytest.raises(BadStream, match=r"FixedDelay\(delay\)"):
        FixedDelay(delay=delay)
