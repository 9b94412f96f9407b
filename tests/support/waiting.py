"""Waiting for a fact, with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ckpt_stream.protocol.deadline import Deadline

T = TypeVar("T")


def wait_for(fact: Callable[[], T | None], what: str, seconds: float = 60.0) -> T:
    """The first true answer of `fact`; an AssertionError that names `what` if there is none in time."""
    found = Deadline.after(seconds).wait_for(fact)
    assert found, f"timed out after {seconds:.0f} s of waiting for {what}"
    return found
