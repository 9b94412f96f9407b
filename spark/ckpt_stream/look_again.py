"""A small file beside the checkpoint is looked at again before it counts as unreadable.

While it is written, some storages show it empty, cut off, or listed and not there. That says nothing about the stream:
neither that there is no such run, nor that it is dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ckpt_stream.files import ReadableFiles
from ckpt_stream.run_record import RunRecordError, Torn

T = TypeVar("T")

#: Replacing a file takes a storage a few requests; a slow one needs a second for some of them.
PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 0.05


class Unreadable(RunRecordError):
    """A file is there and could not be read for a while: the stream could not be looked at."""

    restart_may_help = True

    def __init__(self, file: str, problem: str) -> None:
        self.file, self.problem = file, problem
        super().__init__(
            f"{file} could not be read for {PATIENCE_SECONDS:g} s, so nothing is known about the stream. {problem} Look "
            "again. If it stays so and no driver of the stream lives, a driver died while it wrote the file: delete it."
        )

    def __reduce__(self) -> tuple[type[Unreadable], tuple[str, str]]:
        return type(self), (self.file, self.problem)


def read_listed(files: ReadableFiles, name: str, parse: Callable[[str], T]) -> T | None:
    """A file that a listing named; None if it was deleted since."""
    waited = 0.0
    while True:
        try:
            text = files.read(name)
            if text is not None:
                return parse(text)
            problem = "It is listed, and cannot be opened."
        except (Torn, UnicodeDecodeError) as e:
            text, problem = "", str(e)
        if waited >= PATIENCE_SECONDS:
            break
        time.sleep(PAUSE_SECONDS)
        waited += PAUSE_SECONDS
    folder, _, plain = name.rpartition("/")
    if text is None and plain not in files.names(folder):
        return None
    raise Unreadable(name, problem)
