"""The interface to the storage of a checkpoint, and helpers for numbered files there."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

log = logging.getLogger("ckpt_stream")

#: Replaces the content of a file that is not text.
NOT_A_TEXT = "\N{REPLACEMENT CHARACTER}"


class ReadableFiles(Protocol):
    """The interface for reading a checkpoint, implemented with Hadoop's file systems in the driver and with fsspec elsewhere."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> str | None: ...

    def names(self, folder: str) -> list[str]: ...


class TolerantFiles:
    """The same files; a file that is not text is read as a text that every parser refuses."""

    def __init__(self, files: ReadableFiles) -> None:
        self.exists, self.names = files.exists, files.names
        self._files = files

    def read(self, name: str) -> str | None:
        try:
            return self._files.read(name)
        except UnicodeDecodeError:
            return NOT_A_TEXT


class WritableFiles(ReadableFiles, Protocol):
    """The interface for writing small files beside a checkpoint."""

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
    """Delete files that are no longer needed. A file that cannot be deleted stays: it must not prevent a start."""
    for name in names:
        try:
            files.remove(name)
        except Exception as e:
            # If one file cannot be deleted, the others probably cannot either, and each attempt is a request to the storage.
            log.warning("the old file %s could not be deleted and stays (%s: %s)", name, type(e).__name__, e)
            return
