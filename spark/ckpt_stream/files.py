"""Small text files beside the checkpoint, through Spark's own Hadoop file system: any checkpoint location works."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ReadableFiles(Protocol):
    """What is needed to read a checkpoint: on the driver Hadoop gives it, elsewhere fsspec."""

    def exists(self, name: str) -> bool: ...

    def read(self, name: str) -> str | None: ...

    def names(self, folder: str) -> list[str]: ...


class CheckpointFiles:
    """Reads and atomically replaces files below a checkpoint, with the file manager that Spark uses for its own logs."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        session: Any = spark
        self._jvm = session._jvm
        conf = session._jsparkSession.sessionState().newHadoopConf()
        path = self._jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._fs = path.getFileSystem(conf)
        self.root = self._fs.makeQualified(path)
        streaming = self._jvm.org.apache.spark.sql.execution.streaming
        self._manager = getattr(getattr(streaming, "CheckpointFileManager$"), "MODULE$").create(self.root, conf)
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

    def write(self, name: str, text: str) -> None:
        """Replace the file: a reader sees the former text or the new one, never a part and never nothing."""
        if self._local is not None:
            replace_local(self._local / name, text)
            return
        path = self._path(name)
        self._manager.mkdirs(path.getParent())
        stream = self._manager.createAtomic(path, True)
        try:
            stream.write(text.encode())
            stream.close()
        except BaseException:
            stream.cancel()
            raise

    def delete(self, name: str) -> None:
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    # Hadoop would compare the new text with the old sum.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
