"""Reads a small file beside the checkpoint again until its writer has finished it.

While a file is written, some storages show it empty or cut off, or list it but cannot open it. Such a file does not mean that its
run does not exist or that its driver is dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from ckpt_stream.errors import Torn, Unreadable
from ckpt_stream.protocol.storage import ReadableFiles

T = TypeVar("T")

#: The sum of the pauses between reads; the time of the reads does not count. A writer replaces a file with a few requests, and
#: on a storage that takes a second for a request, a read takes as long.
PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 0.05


def read_when_whole(files: ReadableFiles, name: str, parse: Callable[[str], T]) -> T | None:
    """Read a listed file until it can be parsed; None if it was deleted since the listing."""
    look = _Look(files, name, parse)
    paused = 0.0
    while not look.finds_it_whole():
        if paused >= PATIENCE_SECONDS:
            break
        time.sleep(PAUSE_SECONDS)
        paused += PAUSE_SECONDS
    else:
        return look.value
    folder, _, plain = name.rpartition("/")
    if look.text is None and plain not in files.names(folder):
        return None
    raise Unreadable(name, look.problem, PATIENCE_SECONDS)


class _Look(Generic[T]):
    """What the last read of a file found."""

    def __init__(self, files: ReadableFiles, name: str, parse: Callable[[str], T]) -> None:
        self._files, self._name, self._parse = files, name, parse
        self.value: T | None = None
        self.text: str | None = None
        self.problem = ""

    def finds_it_whole(self) -> bool:
        try:
            self.text = self._files.read(self._name)
            if self.text is not None:
                self.value = self._parse(self.text)
                return True
            self.problem = "It is listed but cannot be opened."
        except (Torn, UnicodeDecodeError) as e:
            self.text, self.problem = "", str(e)
        return False
