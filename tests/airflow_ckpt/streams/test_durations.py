"""Lengths of time as people write and read them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.streams.durations import in_words, to_timedelta

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (timedelta(minutes=2), 120),
        (5, 5),
        (0, 0),
        (0.5, 0.5),
        ("5", 5),
        ("5 seconds", 5),
        ("1 second", 1),
        (" 1.5 Minutes ", 90),
        ("500ms", 0.5),
        ("2h", 7200),
        ("3 d", 259200),
        ("10 min", 600),
    ],
)
def test_a_length_is_understood_however_it_is_written(written: Any, seconds: float) -> None:
    assert to_timedelta(written, "delay") == timedelta(seconds=seconds)


@pytest.mark.parametrize("written", ["", "soon", "5 parsecs", "-5 seconds", "5 5", "5,5 s", "1e3", None, True, [5]])
def test_what_is_no_length_is_refused_with_its_name_and_what_to_write(written: Any) -> None:
    with pytest.raises(BadArgument, match=rf"delay={re.escape(repr(written))}.*timedelta\(seconds=5\)"):
        to_timedelta(written, "delay")


@pytest.mark.parametrize("written", [-1, timedelta(seconds=-1)])
def test_a_negative_length_is_refused(written: Any) -> None:
    with pytest.raises(BadArgument, match="negative"):
        to_timedelta(written, "delay")


@pytest.mark.parametrize("written", [float("inf"), float("nan"), 1e300, "1" + "0" * 30])
def test_a_length_beyond_all_calendars_is_refused_by_name(written: Any) -> None:
    with pytest.raises(BadArgument, match="delay="):
        to_timedelta(written, "delay")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "unknown"),
        (0, "0 s"),
        (0.04, "0.0 s"),
        (2.5, "2.5 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (18120, "5 h 2 min"),
        (86400, "1 d"),
        (86400 * 4 + 3700, "4 d 1 h"),
    ],
)
def test_a_length_is_told_in_its_two_largest_units(seconds: float | None, words: str) -> None:
    assert in_words(seconds) == words
