"""A time limit that several steps share, by a clock that is never set back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Deadline:
    """A moment of the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline in so many seconds."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """The seconds that are left; 0 when it has passed."""
        return max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        return self.left <= 0.0

    def wait_for(self, fact: Callable[[], T | None], pause: float = PAUSE_SECONDS) -> T | None:
        """Call the function until it returns a true value or the deadline has passed; returns the last value."""
        return self.look_until(fact, bool, pause)

    def look_until(self, look: Callable[[], T], enough: Callable[[T], bool], pause: float = PAUSE_SECONDS) -> T:
        """Call the function until its value is enough or the deadline has passed; returns the last value.

        It is called once more after the deadline, so that a change during the last pause counts.
        """
        while True:
            is_last = self.passed
            if enough(seen := look()) or is_last:
                return seen
            time.sleep(min(pause, self.left))
