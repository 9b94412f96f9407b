"""How the stack shows a user what it is doing: a function that takes one line of text per step."""

from __future__ import annotations

from collections.abc import Callable

Announce = Callable[[str], None]


def quiet(line: str) -> None:
    """Show nothing: for callers without a user."""
