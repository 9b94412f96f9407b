"""Errors as librdkafka gives them, by their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

#: Every error that librdkafka knows, by its name.
CODES = {KafkaError(code).name(): code for code in range(-200, 140)}


def kafka_error(name: str, *, fatal: bool = False, retriable: bool = False, abortable: bool = False) -> KafkaError:
    return KafkaError(CODES[name], f"the fake broker answers {name}", fatal, retriable, abortable)


class Answer:
    """A future that is done."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def result(self, timeout: float | None = None) -> Any:
        return self._make()


class Faults:
    """Errors that the next calls of a name end with."""

    def __init__(self) -> None:
        self._next: dict[str, list[Any]] = {}

    def add(self, call: str, *faults: Any) -> None:
        self._next.setdefault(call, []).extend(faults)

    def raise_next(self, call: str) -> None:
        """The next fault of this call: an error is raised, an exception too, a function is called instead."""
        waiting = self._next.get(call)
        if not waiting:
            return
        fault = waiting.pop(0)
        if isinstance(fault, KafkaError):
            raise KafkaException(fault)
        if isinstance(fault, BaseException):
            raise fault
        if callable(fault):
            fault()
