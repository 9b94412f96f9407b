"""Reads a small file beside the checkpoint again until its writer has finished it.

While a file is written, some storages show it empty, cut off, or listed and not there. That shows neither that there is no such
run, nor that its driver is dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ckpt_stream.errors import Torn, Unreadable
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.storage import ReadableFiles

T = TypeVar("T")

#: To replace a file takes a few requests, and some storages need a second for one of them.
PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 0.05


def read_when_whole(files: ReadableFiles, name: str, parse: Callable[[str], T]) -> T | None:
    """A file that a listing named, once it can be parsed; None if it was deleted since."""
    look = _Look(files, name, parse)
    # The time begins after the first look: however long the storage takes for one, there is a second.
    if look.finds_it_whole() or Deadline.after(PATIENCE_SECONDS).wait_for(look.finds_it_whole, PAUSE_SECONDS):
        return look.value
    folder, _, plain = name.rpartition("/")
    if look.text is None and plain not in files.names(folder):
        return None
    raise Unreadable(name, look.problem, PATIENCE_SECONDS)


class _Look(Generic[T]):
    """What the last look at a file found."""

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
            self.problem = "It is listed, and cannot be opened."
        except (Torn, UnicodeDecodeError) as e:
            self.text, self.problem = "", str(e)
        return False
