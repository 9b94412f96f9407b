"""What is needed of the storage of a checkpoint, and how numbered files are kept there."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

log = logging.getLogger("ckpt_stream")

#: Stands for the content of a file that is no text.
NOT_A_TEXT = "\N{REPLACEMENT CHARACTER}"


class ReadableFiles(Protocol):
    """What is needed to read a checkpoint: Hadoop's file systems give it in the driver, fsspec everywhere else."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> str | None: ...

    def names(self, folder: str) -> list[str]: ...


class TolerantFiles:
    """The same files; one that is no text is read as a text that no parser takes."""

    def __init__(self, files: ReadableFiles) -> None:
        self.exists, self.names = files.exists, files.names
        self._files = files

    def read(self, name: str) -> str | None:
        try:
            return self._files.read(name)
        except UnicodeDecodeError:
            return NOT_A_TEXT


class WritableFiles(ReadableFiles, Protocol):
    """What is needed to keep small files beside a checkpoint."""

    #: The checkpoint's folder, for messages.
    root: Any

    def write(self, name: str, text: str) -> None: ...

    def create(self, name: str, text: str) -> bool: ...

    def remove(self, name: str) -> None: ...


def numbered_file(folder: str, number: int) -> str:
    """The file with this number, in a folder whose newest file has the highest number."""
    return f"{folder}/{number:08d}.json"


def file_numbers(files: ReadableFiles, folder: str) -> list[int]:
    """The numbers of the files in such a folder, in order."""
    return sorted(int(stem) for name in files.names(folder) if (stem := name.removesuffix(".json")).isdecimal())


def delete_old_files(files: WritableFiles, names: Iterable[str]) -> None:
    """Delete files that are not needed any more. Those that cannot be deleted stay: that must not keep a stream from starting."""
    for name in names:
        try:
            files.remove(name)
        except Exception as e:
            # If one file may not be deleted, the others may not either, and each try is a request.
            log.warning("the old file %s stays: it cannot be deleted (%s: %s)", name, type(e).__name__, e)
            return
