"""Reads the id of each record of any program: from the key, the value, a header, or a place in the JSON value.

For each id, a 64-bit number and its place are kept, about 20 bytes per record. The number is a hash or, if ids are a sequence of
whole numbers, the id itself. Two different ids with the same hash would count as a duplicate; with 20,000,000 ids the
probability of that is one in 90,000.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable
from typing import Any

from airflow_ckpt.exceptions import BadArgument

HEADER = "header:"
#: `.name` or `[number]`, one after the other.
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")

#: The id of a message as text, or None if it has none.
IdOf = Callable[[Any], bytes | None]


def id_reader(path: str) -> IdOf:
    """A function that reads the id of a message from ``key``, ``value``, ``header:<name>`` or ``$.order.items[0].id``."""
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
        raise BadArgument(
            f"{path!r} is not a part of a record. Write key, value, header:<name>, or a path into the JSON value such as "
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
            # Numbers stay as they are written: as floats, two different long numbers could be equal.
            found: Any = json.loads(value, parse_float=_Written, parse_int=_Written)
            for step in steps:
                if isinstance(found, str):
                    return None  # a text can be indexed too, but its characters are no parts of the JSON
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


def whole_number(given: bytes) -> int | None:
    """The id as a whole number of 64 bits; None if it is not such a number."""
    try:
        number = int(given)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < (1 << 63) else None


class Ids:
    """The ids of a topic with their places, in the order in which they were read."""

    def __init__(self, topic: str, *, sequence: bool = False) -> None:
        from xxhash import xxh64_intdigest

        self.topic = topic
        self._number_of: Callable[[bytes], int | None] = whole_number if sequence else xxh64_intdigest
        #: The number that is kept for each id, and the place of its record.
        self.numbers: array[int] = array("q" if sequence else "Q")
        self.partitions: array[int] = array("i")
        self.offsets: array[int] = array("q")
        #: Records without an id, and the place of the first of them.
        self.without = 0
        self.first_without: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, found: bytes | None, partition: int, offset: int) -> None:
        number = None if found is None else self._number_of(found)
        if number is None:
            self.without += 1
            self.first_without = self.first_without or (partition, offset)
            return
        self.numbers.append(number)
        self.partitions.append(partition)
        self.offsets.append(offset)

    def arrays(self) -> tuple[Any, Any, Any]:
        """Numbers, partitions and offsets as numpy arrays."""
        import numpy as np

        return tuple(np.array(kept) for kept in (self.numbers, self.partitions, self.offsets))  # type: ignore[return-value]

    def place(self, index: int) -> str:
        return f"{self.topic}-{self.partitions[index]} offset {self.offsets[index]}"
