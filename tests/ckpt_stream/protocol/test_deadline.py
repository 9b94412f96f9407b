"""The time limit that several steps share."""

from __future__ import annotations

import pytest

from ckpt_stream.protocol import deadline as module
from ckpt_stream.protocol.deadline import Deadline
from tests.support.fake_clock import FakeClock

pytestmark = pytest.mark.unit


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(module, "time", fake)
    return fake


def test_a_deadline_counts_down_to_zero_and_never_below(clock: FakeClock) -> None:
    deadline = Deadline.after(2)
    clock.now += 1.5
    assert (deadline.left, deadline.passed) == (0.5, False)
    clock.now += 1.5
    assert (deadline.left, deadline.passed) == (0.0, True)


def test_waiting_ends_with_the_first_true_answer(clock: FakeClock) -> None:
    answers = iter([None, None, "there"])
    assert Deadline.after(10).wait_for(lambda: next(answers), pause=1) == "there"
    assert clock.slept == [1, 1]


def test_waiting_ends_with_the_last_answer_when_the_time_is_over(clock: FakeClock) -> None:
    asked: list[float] = []
    assert Deadline.after(2.5).wait_for(lambda: asked.append(clock.now), pause=1) is None
    assert asked == [0.0, 1.0, 2.0, 2.5]


def test_a_fact_that_came_true_during_the_last_pause_counts(clock: FakeClock) -> None:
    assert Deadline.after(1).wait_for(lambda: clock.now >= 1 or None, pause=5)


def test_what_is_asked_after_the_deadline_is_asked_once(clock: FakeClock) -> None:
    asked: list[float] = []
    Deadline.after(0).wait_for(lambda: asked.append(clock.now))
    assert (len(asked), clock.slept) == (1, [])


def test_looking_ends_with_the_first_look_that_is_enough_else_with_the_last(clock: FakeClock) -> None:
    assert Deadline.after(10).look_until(lambda: clock.now, lambda seen: seen >= 3, pause=1) == 3.0
    assert Deadline.after(1.5).look_until(lambda: clock.now, lambda seen: False, pause=1) == 4.5
