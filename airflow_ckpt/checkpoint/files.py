"""The files of a checkpoint as Airflow sees them: through fsspec, so any storage that it knows works."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec


class FsspecFiles:
    """Text files below a checkpoint; the same calls as the driver's `CheckpointFiles`."""

    def __init__(self, checkpoint: str, storage_options: Mapping[str, Any] | None = None) -> None:
        # A checkpoint changes all the time: a cached listing would be a lie.
        options = {"use_listings_cache": False, **(storage_options or {})}
        self._fs, root = fsspec.core.url_to_fs(checkpoint, **options)
        self.root = str(root).rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        """The file's text; None when there is no such file."""
        try:
            return self._cat(self._path(name)).decode()
        except FileNotFoundError:
            return None

    def _cat(self, path: str) -> bytes:
        return _cat_webhdfs(self._fs, path) if "webhdfs" in self._fs.protocol else bytes(self._fs.cat_file(path))

    def write(self, name: str, text: str) -> None:
        """Replace the file: where the storage has no atomic write of its own, by a temporary one that is moved over it."""
        path = self._path(name)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if "file" in self._fs.protocol:
            temporary = _beside(path)
            Path(temporary).write_text(text)
            os.replace(temporary, path)
        elif "webhdfs" in self._fs.protocol:
            # Its write is a create and an append, and its move does not replace what is there.
            temporary = _beside(path)
            self._fs.pipe_file(temporary, text.encode())
            self._fs._call("RENAME", method="put", path=temporary, destination=path, renameoptions="OVERWRITE")
        else:
            self._fs.pipe_file(path, text.encode())

    def remove(self, name: str) -> None:
        """Delete the file, if it is there."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def names(self, folder: str) -> list[str]:
        """The plain names in a folder; none when there is no such folder."""
        try:
            return sorted(str(path).rsplit("/", 1)[-1] for path in self._fs.ls(self._path(folder), detail=False))
        except FileNotFoundError:
            return []

    def sizes(self, folder: str) -> dict[str, int]:
        """The bytes of every file below a folder, by its path from there; none when there is no such folder."""
        root = self._path(folder)
        try:
            found = self._fs.find(root, detail=True)
        except FileNotFoundError:
            return {}
        return {str(path).removeprefix(f"{root}/"): int(info.get("size") or 0) for path, info in found.items()}


def _beside(path: str) -> str:
    """A name that no other process and no other thread of a triggerer writes to."""
    return f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"


def _cat_webhdfs(fs: Any, path: str) -> bytes:
    """One version of a file, whole, even if it is replaced meanwhile.

    fsspec asks for the size and then reads so many bytes: of a longer file that has taken the former one's place between
    the two it returns the beginning, and a DataNode's error message it returns as if it were the file.
    """
    answer = fs._call("OPEN", path=path, redirect=False)
    if location := answer.headers.get("Location"):
        answer = fs.session.get(fs._apply_proxy(location))
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError(path)
        answer.raise_for_status()
    return bytes(answer.content)
