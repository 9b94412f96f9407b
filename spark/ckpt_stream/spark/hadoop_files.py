"""Small text files beside the checkpoint, through Spark's own Hadoop file system: any checkpoint location works."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from ckpt_stream.machine.local_files import create_local, read_local, replace_local

#: The class with which Hadoop adapts an older file system to its newer API. To rename over a file, it deletes that file first.
_BRIDGE = "org.apache.hadoop.fs.DelegateToFileSystem"


class CheckpointFiles:
    """Reads and replaces files below a checkpoint, on any storage that Spark supports."""

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
        # Hadoop replaces a local file by deleting it first: for a moment a reader would see no file.
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
        """Whether a rename replaces a file in one step, as on HDFS; an object store deletes, copies and deletes."""
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        try:
            found = self._jvm.org.apache.hadoop.fs.AbstractFileSystem.get(self.root.toUri(), conf)
        except Py4JJavaError:
            return False
        return not is_instance_of(self._gateway, found, _BRIDGE)

    def write(self, name: str, text: str) -> None:
        """Replace the file; a reader finds the old text or the new one at every moment.

        On local storage and HDFS a temporary file is renamed over it. On an object store it is written in place: S3 and
        Google Cloud Storage show it when it is complete; Azure and unknown storage may show it empty for a moment, and
        readers then read it again (`protocol.run_files.unfinished_files`).
        """
        if self._local is not None:
            replace_local(self._local / name, text)
        elif self._rename_replaces:
            self._write_beside(name, text)
        else:
            self._put(self._path(name), text, replace=True)

    def create(self, name: str, text: str) -> bool:
        """Write a file that does not exist yet; False if it exists.

        When two processes create it at once, local storage, HDFS, Azure and Google Cloud Storage refuse one of them. S3, as
        Hadoop 3.4.1 writes to it, refuses neither.
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
        # After an error the stream is not closed, because that would publish the part that was written.
        stream = self._fs.create(path, replace)
        stream.write(text.encode())
        stream.close()

    def remove(self, name: str) -> None:
        """Delete the file, if it exists."""
        self._fs.delete(self._path(name), False)

    def delete_folder(self, name: str) -> None:
        """Delete a folder and everything in it."""
        self._fs.delete(self._path(name), True)

    def names(self, folder: str) -> list[str]:
        """The plain names in a folder; empty if there is no such folder."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(path))
