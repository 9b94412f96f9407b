"""Finds out whether a value is a Jinja template, and where in a value its texts are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_template(value: object) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def texts_by_path(value: Any, path: str = "") -> list[tuple[str, str]]:
    """The texts in a value, each with its path: `options.jdbc.url`."""
    if isinstance(value, str):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [one for name, inner in value.items() for one in texts_by_path(inner, f"{path}.{name}".lstrip("."))]
    if isinstance(value, list | tuple):
        return [one for inner in value for one in texts_by_path(inner, path)]
    return []


def names_in(value: Any) -> list[str]:
    """The names in a mapping and in the mappings inside it."""
    if isinstance(value, Mapping):
        return [found for name, inner in value.items() for found in (str(name), *names_in(inner))]
    if isinstance(value, list | tuple):
        return [found for inner in value for found in names_in(inner)]
    return []


def number_or_switch(text: str) -> int | bool | None:
    """The number or the switch in a rendered text; raises ValueError for any other text."""
    words = {"true": True, "false": False, "none": None, "null": None, "": None}
    lowered = text.strip().lower()
    return words[lowered] if lowered in words else int(lowered)
