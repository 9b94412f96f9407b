"""Durations as users write them: a timedelta, seconds, or "5 seconds"."""

from __future__ import annotations

import re
from datetime import timedelta

from airflow_ckpt.exceptions import BadArgument

Duration = timedelta | float | int | str

_UNITS = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def to_timedelta(value: Duration, what: str, error: type[BadArgument] = BadArgument) -> timedelta:
    """The duration that a user wrote; for any other value raises `error`, which says how to write a duration."""
    try:
        found = _parsed(value)
    except (ValueError, OverflowError) as e:  # timedelta refuses it: not a number, or too large
        raise error(f"{what}={value!r} is not a duration: {e}.") from e
    if found is None:
        raise error(f'{what}={value!r} is not a duration. Write timedelta(seconds=5) or "5 seconds".')
    if found < timedelta(0):
        raise error(f"{what}={value!r} is negative.")
    return found


def _parsed(value: Duration) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return timedelta(seconds=value)
    match = _TEXT.fullmatch(str(value).lower())
    unit = _UNITS.get(match.group(2) or "s") if match else None
    return timedelta(seconds=float(match.group(1)) * unit) if match and unit else None


def in_words(seconds: float | None) -> str:
    """A duration for logs and tables: `12 s`, `3 min 20 s`, `5 h 2 min`, `4 d 1 h`."""
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 and seconds != whole else f"{whole} s"
    for big, small, size in (("min", "s", 60), ("h", "min", 3600), ("d", "h", 86400)):
        if whole < size * {"min": 60, "h": 24, "d": 10**9}[big]:
            rest = whole % size // {"s": 1, "min": 60, "h": 3600}[small]
            return f"{whole // size} {big} {rest} {small}" if rest else f"{whole // size} {big}"
    return f"{whole} s"
