"""Which of Hadoop's calls the driver makes to write beside its checkpoint, by kind of storage."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import py4j.java_gateway
import pytest
from py4j.protocol import Py4JJavaError

from ckpt_stream.spark.hadoop_files import CheckpointFiles

pytestmark = pytest.mark.unit

BRIDGE = "org.apache.hadoop.fs.DelegateToFileSystem"


class AlreadyThere(Py4JJavaError):
    def __init__(self, name: str = "FileAlreadyExistsException") -> None:
        self.java_exception = MagicMock()
        self.java_exception.getClass().getSimpleName.return_value = name


def files_on(monkeypatch: pytest.MonkeyPatch, newer_api: str | None) -> tuple[CheckpointFiles, Any, Any]:
    """The files, Hadoop's file system and Spark's file manager, on a storage whose class of the newer API is this one."""
    monkeypatch.setattr(py4j.java_gateway, "is_instance_of", lambda gateway, found, name: found == name)
    session = MagicMock()
    jvm = session._jvm
    fs = jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value
    managers = getattr(jvm.org.apache.spark.sql.execution.streaming, "CheckpointFileManager$")
    get = jvm.org.apache.hadoop.fs.AbstractFileSystem.get
    get.return_value = newer_api
    if newer_api is None:
        get.side_effect = AlreadyThere("UnsupportedFileSystemException")
    files = CheckpointFiles(session, "a-storage://x")
    return files, fs, getattr(managers, "MODULE$").create.return_value


@pytest.mark.parametrize("newer_api", [BRIDGE, None])
def test_an_object_store_is_written_in_place_and_nothing_is_deleted_or_renamed(
    monkeypatch: pytest.MonkeyPatch, newer_api: str | None
) -> None:
    """A rename is a copy there, and a rename over a file deletes that file first: in between a reader would find no run."""
    files, fs, manager = files_on(monkeypatch, newer_api)
    files.write("_ckpt/runs/r.json", "text")
    (_, overwrite), _ = fs.create.call_args
    assert overwrite is True
    stream = fs.create.return_value
    assert [call[0] for call in stream.method_calls] == ["write", "close"]
    stream.write.assert_called_once_with(b"text")
    assert not manager.createAtomic.called
    assert not fs.delete.called
    assert not fs.rename.called


def test_the_part_that_a_failed_write_wrote_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    files, fs, _ = files_on(monkeypatch, BRIDGE)
    fs.create.return_value.write.side_effect = AlreadyThere("IOException")
    with pytest.raises(Py4JJavaError):
        files.write("_ckpt/runs/r.json", "text")
    assert not fs.create.return_value.close.called


def test_where_a_rename_replaces_in_one_step_the_file_is_written_beside_and_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, fs, manager = files_on(monkeypatch, "org.apache.hadoop.fs.Hdfs")
    files.write("_ckpt/runs/r.json", "text")
    assert manager.createAtomic.call_args[0][1] is True
    assert manager.createAtomic.return_value.close.called
    assert not fs.create.called


def test_an_existing_file_is_not_created_again_in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    files, fs, _ = files_on(monkeypatch, BRIDGE)
    assert files.create("_ckpt/restarts/00000001.json", "text") is True
    fs.create.side_effect = AlreadyThere()
    assert files.create("_ckpt/restarts/00000001.json", "text") is False
    fs.create.side_effect = AlreadyThere("AccessControlException")
    with pytest.raises(Py4JJavaError):
        files.create("_ckpt/restarts/00000001.json", "text")


def test_an_existing_file_is_not_created_again_by_a_rename_and_no_temporary_file_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, fs, _ = files_on(monkeypatch, "org.apache.hadoop.fs.Hdfs")
    fs.rename.return_value = True
    assert files.create("_ckpt/restarts/00000001.json", "text") is True
    assert not fs.delete.called
    fs.rename.return_value = False
    assert files.create("_ckpt/restarts/00000001.json", "text") is False
    assert fs.delete.called
