"""Small text files beside the checkpoint, through Spark's own Hadoop file system: any checkpoint location works."""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("ckpt_stream")


class ReadableFiles(Protocol):
    """What is needed to read a checkpoint: on the driver Hadoop gives it, elsewhere fsspec."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> str | None: ...

    def names(self, folder: str) -> list[str]: ...


class WritableFiles(ReadableFiles, Protocol):
    """What is needed to keep small files beside a checkpoint."""

    #: The checkpoint's folder, for people.
    root: Any

    def write(self, name: str, text: str) -> None: ...

    def create(self, name: str, text: str) -> bool: ...

    def remove(self, name: str) -> None: ...


def numbered(folder: str, number: int) -> str:
    """The file with this number, in a folder whose newest file has the highest number."""
    return f"{folder}/{number:08d}.json"


def numbers(files: ReadableFiles, folder: str) -> list[int]:
    """The numbers of the files in such a folder, in order."""
    return sorted(int(stem) for name in files.names(folder) if (stem := name.removesuffix(".json")).isdecimal())


def tidy(files: WritableFiles, names: Iterable[str]) -> None:
    """Delete files that are not needed any more. Where that fails they stay: it is no reason not to start a stream."""
    for name in names:
        try:
            files.remove(name)
        except Exception as e:
            # One that may not be deleted is rarely alone, and each try is a request.
            log.warning("the old file %s stays: it cannot be deleted (%s: %s)", name, type(e).__name__, e)
            return


#: Hadoop's way to give a file system the newer API. It renames over a file by deleting that first.
_BRIDGE = "org.apache.hadoop.fs.DelegateToFileSystem"


class CheckpointFiles:
    """Reads and replaces files below a checkpoint, wherever Spark can keep one."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        session: Any = spark
        self._jvm, self._gateway = session._jvm, session.sparkContext._gateway
        conf = session._jsparkSession.sessionState().newHadoopConf()
        path = self._jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._fs = path.getFileSystem(conf)
        self.root = self._fs.makeQualified(path)
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        self._manager = getattr(getattr(streaming, "CheckpointFileManager$"), "MODULE$").create(self.root, conf)
        self._rename_replaces = self._can_rename_over(conf)
        # Hadoop replaces a local file by deleting it first: for a moment a reader would see none.
        self._local = Path(self.root.toUri().getPath()) if self._fs.getUri().getScheme() == "file" else None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.root, name)

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        """The file's text; None when there is no such file."""
        if self._local is not None:
            return read_local(self._local / name)
        from py4j.protocol import Py4JJavaError

        try:
            stream = self._fs.open(self._path(name))
        except Py4JJavaError as e:
            if e.java_exception.getClass().getSimpleName() == "FileNotFoundException":
                return None
            raise
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _can_rename_over(self, conf: Any) -> bool:
        """Whether a rename replaces a file in one step, as on HDFS; on object stores it is a deletion, a copy, a deletion."""
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        try:
            found = self._jvm.org.apache.hadoop.fs.AbstractFileSystem.get(self.root.toUri(), conf)
        except Py4JJavaError:
            return False
        return not is_instance_of(self._gateway, found, _BRIDGE)

    def write(self, name: str, text: str) -> None:
        """Replace the file. At no moment it is not there.

        Local files and HDFS: by a temporary one that is renamed over it. Object stores: by writing it, which S3 and Google
        Cloud Storage show when it is complete. Azure, and a storage that is not known, may show it empty for a moment, which
        readers take for what it is (`look_again`).
        """
        if self._local is not None:
            replace_local(self._local / name, text)
        elif self._rename_replaces:
            self._write_beside(name, text)
        else:
            self._put(self._path(name), text, replace=True)

    def create(self, name: str, text: str) -> bool:
        """Write a file that must not be there yet; False if it is.

        Of two who create it at once one is refused by local files, HDFS, Azure and Google Cloud Storage, and not by S3 as
        Hadoop 3.4.1 writes to it.
        """
        if self._local is not None:
            return create_local(self._local / name, text)
        if self._rename_replaces:
            return self._create_by_rename(name, text)
        from py4j.protocol import Py4JJavaError

        try:
            self._put(self._path(name), text, replace=False)
        except Py4JJavaError as e:
            if e.java_exception.getClass().getSimpleName() == "FileAlreadyExistsException":
                return False
            raise
        return True

    def _create_by_rename(self, name: str, text: str) -> bool:
        folder, _, plain = name.rpartition("/")
        temporary = self._path(f"{folder}/.{plain}.{uuid.uuid4()}.tmp".lstrip("/"))
        self._put(temporary, text, replace=False)
        done = bool(self._fs.rename(temporary, self._path(name)))
        if not done:
            self._fs.delete(temporary, False)
        return done

    def _write_beside(self, name: str, text: str) -> None:
        path = self._path(name)
        self._manager.mkdirs(path.getParent())
        stream = self._manager.createAtomic(path, True)
        try:
            stream.write(text.encode())
            stream.close()
        except BaseException:
            stream.cancel()
            raise

    def _put(self, path: Any, text: str, *, replace: bool) -> None:
        # Not closed after an error: that would show what was written until then.
        stream = self._fs.create(path, replace)
        stream.write(text.encode())
        stream.close()

    def remove(self, name: str) -> None:
        """Delete the file, if it is there."""
        self._fs.delete(self._path(name), False)

    def delete_folder(self, name: str) -> None:
        """Delete a folder with everything in it."""
        self._fs.delete(self._path(name), True)

    def names(self, folder: str) -> list[str]:
        """The plain names in a folder; none when there is no such folder."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(path))


def read_local(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def replace_local(path: Path, text: str) -> None:
    """Replace a file of this machine in one step."""
    _written_beside(path, text).replace(path)
    # Hadoop would compare the new text with the old sum.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


#: What file systems without hard links answer.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def create_local(path: Path, text: str) -> bool:
    """Write a file of this machine, whole, if it is not there; False if it is. One of many who do so succeeds."""
    temporary = _written_beside(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        return _create_without_link(path, text)
    finally:
        temporary.unlink()
    return True


def _create_without_link(path: Path, text: str) -> bool:
    """A reader may see it empty for a moment."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _written_beside(path: Path, text: str) -> Path:
    """The text under a name that no other process and no other thread writes to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    return temporary
