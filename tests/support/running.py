"""Starts a server for a test and stops it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Server(Protocol):
    """What the embedded stack and the servers of this folder have in common."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Server)


@contextmanager
def running(server: S) -> Iterator[S]:
    """The started server; stopped afterwards, also when its start fails."""
    try:
        server.start()
        yield server
    finally:
        server.stop()
