"""Which part of a record tells it apart from all others: its key, its value, a header, or a place in its JSON value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from airflow_ckpt.exceptions import CkptError

HEADER = "header:"
#: `.name` or `[number]`, one after the other.
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")

#: The id of a message as text, or None where it has none.
IdOf = Callable[[Any], bytes | None]


def id_reader(path: str) -> IdOf:
    """A function that finds the id of a message: ``key``, ``value``, ``header:<name>`` or ``$.order.items[0].id``."""
    if path == "key":
        return _key
    if path == "value":
        return _value
    if path.startswith(HEADER) and len(path) > len(HEADER):
        return _header(path.removeprefix(HEADER))
    return _json(steps_of(path))


def steps_of(path: str) -> list[str | int]:
    """The steps of a JSON path: names and numbers."""
    steps: list[str | int] = []
    position = 1
    while path.startswith("$") and position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        steps.append(found[1] if found[1] is not None else int(found[2]))
        position = found.end()
    if not steps or position < len(path):
        raise CkptError(
            f"{path!r} names no part of a record. Write key, value, header:<name>, or a path into the JSON value such as "
            "$.order.id or $.items[0].id."
        )
    return steps


def _key(message: Any) -> bytes | None:
    key: bytes | None = message.key()
    return key


def _value(message: Any) -> bytes | None:
    value: bytes | None = message.value()
    return value


def _header(name: str) -> IdOf:
    def read(message: Any) -> bytes | None:
        return next((value for key, value in message.headers() or () if key == name), None)

    return read


def _json(steps: list[str | int]) -> IdOf:
    def read(message: Any) -> bytes | None:
        value = message.value()
        if value is None:
            return None
        try:
            # Numbers stay as they are written: a float would make two long ones the same.
            found: Any = json.loads(value, parse_float=_Written, parse_int=_Written)
            for step in steps:
                if isinstance(found, str):
                    return None  # a text has places too, but they are no part of the JSON
                found = found[step]
        except (ValueError, KeyError, IndexError, TypeError, RecursionError):
            return None
        return _bytes(found)

    return read


class _Written(str):
    """A number as it is written."""

    __slots__ = ()


def _bytes(found: Any) -> bytes | None:
    if found is None:
        return None
    text = found if isinstance(found, str) else json.dumps(found, sort_keys=True)
    return text.encode(errors="surrogatepass")


def id_bytes(given: object) -> bytes:
    """An id that a caller gives, as records have it."""
    return given if isinstance(given, bytes) else str(given).encode()


def whole_number(given: bytes) -> int | None:
    """The id as a whole number of 64 bits; None when it is none."""
    try:
        number = int(given)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < (1 << 63) else None
