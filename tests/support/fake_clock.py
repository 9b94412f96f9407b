"""A clock that moves only when a test, or a sleep, moves it."""

from __future__ import annotations


class FakeClock:
    """Takes the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
