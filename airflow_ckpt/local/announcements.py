"""Announcements: a function that shows the user one line of text for each step of the stack."""

from __future__ import annotations

from collections.abc import Callable

Announce = Callable[[str], None]


def quiet(line: str) -> None:
    """Show nothing, for callers without a user."""
