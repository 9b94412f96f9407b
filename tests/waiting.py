"""Waiting for a fact, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(fact: Callable[[], T], what: str, seconds: float = 60.0) -> T:
    """The first true value of `fact`; an assertion that names what did not come."""
    deadline = time.monotonic() + seconds
    while True:
        if value := fact():
            return value
        assert time.monotonic() < deadline, f"timed out after {seconds:.0f} s of waiting for {what}"
        time.sleep(0.05)
