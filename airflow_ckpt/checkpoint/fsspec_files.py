"""The files of a checkpoint for Airflow, through fsspec: any storage with an fsspec implementation works."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec

from ckpt_stream.machine.local_files import create_local, replace_local

#: Storages whose client can create an object on the condition that it does not exist.
CONDITIONAL = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az")


class FsspecFiles:
    """Text files below a checkpoint; the same calls as the driver's `CheckpointFiles`."""

    def __init__(self, checkpoint: str, storage_options: Mapping[str, Any] | None = None) -> None:
        # A checkpoint changes all the time: a cached listing would be out of date.
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
        return _cat_webhdfs(self._fs, path) if self._is("webhdfs") else bytes(self._fs.cat_file(path))

    def write(self, name: str, text: str) -> None:
        """Replace the file. If the storage has no atomic write, a temporary file is written and moved over it."""
        path = self._path(name)
        if self._is("file"):
            replace_local(Path(path), text)
        elif self._is("webhdfs"):
            # WebHDFS writes with a create and an append, and its move does not replace an existing file.
            self._rename(self._written_beside(path, text), path, renameoptions="OVERWRITE")
        else:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, text.encode())

    def create(self, name: str, text: str) -> bool:
        """Create a file; False if it exists. Of several processes that create it at once, one succeeds.

        Some storages do not guarantee that (see docs/run-on.md); then the result depends on a check before the write.
        """
        path = self._path(name)
        if self._is("file"):
            return create_local(Path(path), text)
        if self._is("webhdfs"):
            temporary = self._written_beside(path, text)
            done = self._rename(temporary, path)
            if not done:
                self._fs.rm_file(temporary)
            return done
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if not self._is(*CONDITIONAL):
            return self._create_if_not_seen(path, text)
        try:
            self._fs.pipe_file(path, text.encode(), mode="create")
        except FileExistsError:
            return False
        except Exception as e:
            if _error_code(e) == "NotImplemented":
                return self._create_if_not_seen(path, text)
            if _error_code(e) == "ConditionalRequestConflict":
                # Another process creates it at this moment.
                return False
            raise
        return True

    def _create_if_not_seen(self, path: str, text: str) -> bool:
        if self._fs.exists(path):
            return False
        self._fs.pipe_file(path, text.encode())
        return True

    def _is(self, *protocols: str) -> bool:
        own = self._fs.protocol
        return not {own}.isdisjoint(protocols) if isinstance(own, str) else not {*own}.isdisjoint(protocols)

    def _written_beside(self, path: str, text: str) -> str:
        temporary = _beside(path)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(temporary, text.encode())
        return temporary

    def _rename(self, path: str, to: str, **options: str) -> bool:
        """Move the file in one step; without an option, WebHDFS does not replace a file but answers false."""
        answer = self._fs._call("RENAME", method="put", path=path, destination=to, **options)
        return bool(not answer.content or answer.json().get("boolean", True))

    def remove(self, name: str) -> None:
        """Delete the file, if it exists."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def names(self, folder: str) -> list[str]:
        """The plain names in a folder; empty if there is no such folder."""
        try:
            return sorted(str(path).rsplit("/", 1)[-1] for path in self._fs.ls(self._path(folder), detail=False))
        except FileNotFoundError:
            return []

    def sizes(self, folder: str) -> dict[str, int]:
        """The size of every file below a folder, by its relative path; empty if there is no such folder."""
        root = self._path(folder)
        try:
            found = self._fs.find(root, detail=True)
        except FileNotFoundError:
            return {}
        return {str(path).removeprefix(f"{root}/"): int(info.get("size") or 0) for path, info in found.items()}


def _beside(path: str) -> str:
    """A name that no other process and no other thread of a triggerer writes to."""
    return f"{path}.{os.getpid()}.{threading.get_ident()}.tmp"


def _error_code(error: BaseException) -> str:
    """S3's name of an error; its client keeps the answer as the cause of the exception."""
    answer = getattr(error.__cause__, "response", None)
    return str(answer.get("Error", {}).get("Code", "")) if isinstance(answer, dict) else ""


def _cat_webhdfs(fs: Any, path: str) -> bytes:
    """Read one whole version of a file, even if it is replaced during the read.

    fsspec asks for the size and then reads that many bytes. If the file is replaced by a longer one in between, fsspec returns
    only the beginning of the new file. It also returns a DataNode's error message as if it were the file.
    """
    answer = fs._call("OPEN", path=path, redirect=False)
    if location := answer.headers.get("Location"):
        answer = fs.session.get(fs._apply_proxy(location))
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError(path)
        answer.raise_for_status()
    return bytes(answer.content)
