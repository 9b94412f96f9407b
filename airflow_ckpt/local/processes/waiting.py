"""Waits for a condition of the stack, such as a server's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from airflow_ckpt.exceptions import StackError
from ckpt_stream.protocol.deadline import PAUSE_SECONDS, Deadline

T = TypeVar("T")


def wait_for(fact: Callable[[], T | None], what: str, seconds: float, *, pause: float = PAUSE_SECONDS) -> T:
    """Call `fact` until it returns a true value, and return that; raises StackError, which names `what`, after the time limit."""
    found = Deadline.after(seconds).wait_for(fact, pause)
    if not found:
        raise StackError(f"timed out after {seconds:g} s of waiting for {what}")
    return found
