"""A file that must not be there yet, on storages that promise it in different ways: of two tasks, one creates it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles

pytestmark = pytest.mark.unit

NAME, PATH = "_ckpt/restarts/1.json", "bucket/orders/_ckpt/restarts/1.json"


def s3_error(code: str) -> Exception:
    error = OSError(code)
    error.__cause__ = Exception(code)
    error.__cause__.response = {"Error": {"Code": code}}  # type: ignore[attr-defined]
    return error


class Storage:
    """An fsspec filesystem in memory: what of it `FsspecFiles` calls."""

    def __init__(self, *protocol: str) -> None:
        self.protocol = protocol
        self.files: dict[str, bytes] = {}
        #: Raised by a conditional write.
        self.refuses: Exception | None = None
        #: Each write: its path, and how it was to be made.
        self.writes: list[tuple[str, str]] = []

    def makedirs(self, path: str, exist_ok: bool) -> None:
        pass

    def exists(self, path: str) -> bool:
        return path in self.files

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self.writes.append((path, mode))
        if mode == "create" and self.refuses is not None:
            raise self.refuses
        if mode == "create" and path in self.files:
            raise FileExistsError(path)
        self.files[path] = data

    def rm_file(self, path: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        del self.files[path]

    def _call(self, operation: str, *, path: str, destination: str = "", **options: Any) -> Any:
        """WebHDFS: a move replaces no file unless it is told to."""
        assert operation == "RENAME"
        moves = destination not in self.files or options.get("renameoptions") == "OVERWRITE"
        if moves:
            self.files[destination] = self.files.pop(path)
        return SimpleNamespace(content=b"{}", json=lambda: {"boolean": moves})


def on(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> FsspecFiles:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **options: (storage, "bucket/orders"))
    return FsspecFiles("s3a://bucket/orders")


@pytest.mark.parametrize("protocol", [("s3", "s3a"), ("gs", "gcs"), ("abfs",), ("webhdfs",), ("sftp",)])
def test_of_two_who_create_a_file_the_second_one_is_told_so_and_replaces_nothing(
    monkeypatch: pytest.MonkeyPatch, protocol: tuple[str, ...]
) -> None:
    storage = Storage(*protocol)
    files = on(storage, monkeypatch)
    assert [files.create(NAME, text) for text in ("first", "second")] == [True, False]
    assert storage.files == {PATH: b"first"}, "nothing else stays, such as a temporary file"


def test_an_object_store_is_asked_to_create_only_if_nothing_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look before the write would let both tasks find nothing."""
    storage = Storage("s3", "s3a")
    on(storage, monkeypatch).create(NAME, "first")
    assert storage.writes == [(PATH, "create")]


def test_a_file_that_another_task_creates_at_this_moment_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("s3", "s3a")
    storage.refuses = s3_error("ConditionalRequestConflict")
    assert on(storage, monkeypatch).create(NAME, "mine") is False


def test_a_store_without_conditions_is_asked_first_whether_the_file_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("s3", "s3a")
    storage.refuses = s3_error("NotImplemented")
    files = on(storage, monkeypatch)
    assert [files.create(NAME, text) for text in ("first", "second")] == [True, False]
    assert storage.files == {PATH: b"first"}


def test_any_other_answer_of_the_store_is_an_error_and_no_lost_race(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("s3", "s3a")
    storage.refuses = s3_error("AccessDenied")
    with pytest.raises(OSError, match="AccessDenied"):
        on(storage, monkeypatch).create(NAME, "mine")


def test_a_file_that_cannot_be_deleted_is_an_error_and_one_that_is_not_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a stop request, which the next driver would obey."""
    storage = Storage("s3", "s3a")
    files = on(storage, monkeypatch)
    storage.refuses = FileNotFoundError()
    files.remove("_ckpt/stop.json")
    storage.refuses = PermissionError("AccessDenied")
    with pytest.raises(PermissionError):
        files.remove("_ckpt/stop.json")


def test_a_file_on_webhdfs_is_replaced_by_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("webhdfs")
    files = on(storage, monkeypatch)
    for text in ("first", "second"):
        files.write(NAME, text)
    assert storage.files == {PATH: b"second"}


@pytest.mark.parametrize(("status", "error"), [(404, FileNotFoundError), (500, OSError)])
def test_an_error_of_a_datanode_is_not_taken_for_the_file(
    monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    def raise_for_status() -> None:
        raise OSError("500 Server Error")

    answer = SimpleNamespace(status_code=status, content=b"an error page", raise_for_status=raise_for_status)
    storage: Any = Storage("webhdfs")
    storage._call = lambda *_, **__: SimpleNamespace(headers={"Location": "http://datanode"}, content=b"")
    storage._apply_proxy = lambda location: location
    storage.session = SimpleNamespace(get=lambda url: answer)
    files = on(storage, monkeypatch)
    if error is FileNotFoundError:
        assert files.read(NAME) is None
    else:
        with pytest.raises(error):
            files.read(NAME)


def test_no_listing_of_a_storage_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint changes all the time."""
    given: list[dict[str, Any]] = []

    def url_to_fs(url: str, **options: Any) -> tuple[Storage, str]:
        given.append(options)
        return Storage("s3"), "bucket/orders"

    monkeypatch.setattr(fsspec.core, "url_to_fs", url_to_fs)
    FsspecFiles("s3a://bucket/orders", {"anon": True})
    FsspecFiles("s3a://bucket/orders", {"use_listings_cache": True})
    assert given == [{"use_listings_cache": False, "anon": True}, {"use_listings_cache": True}]
