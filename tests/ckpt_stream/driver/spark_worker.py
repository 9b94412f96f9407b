"""The input of a Spark task's Python worker, over a socket: an Arrow stream, and what Spark writes after it."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from ckpt_stream.driver.end_of_input import END_OF_STREAM


def arrow(batches: list[Any], *, closed: bool, schema: Any = None) -> bytes:
    """What the JVM writes: a schema, batches and, if it has read its input to the end, Arrow's own mark of the end."""
    out = io.BytesIO()
    writer = pa.ipc.new_stream(out, schema or batches[0].schema)
    for batch in batches:
        writer.write_batch(batch)
    if closed:
        writer.close()
    return out.getvalue()


def loaded(stream: Any) -> Iterator[Any]:
    """As PySpark reads a task's input."""
    yield from pa.ipc.open_stream(stream)


@contextmanager
def worker_input(*chunks: bytes, buffer: int = 65536) -> Iterator[Any]:
    """A worker's buffered end of a connection whose other end writes these chunks and closes it."""
    jvm, worker = socket.socketpair()

    def write() -> None:
        with jvm, suppress(BrokenPipeError):  # a worker that failed does not read its input to the end
            for chunk in chunks:
                jvm.sendall(chunk)

    writing = threading.Thread(target=write)
    writing.start()
    with worker, worker.makefile("rb", buffer) as stream:
        yield stream
    writing.join()


@contextmanager
def task_rows(*batches: Any, end: bytes = END_OF_STREAM, closed: bool = True) -> Iterator[Iterator[Any]]:
    """A task's rows as PySpark hands them to the task's function, with this after the Arrow stream."""
    with worker_input(arrow(list(batches), closed=closed) + end) as stream:
        yield loaded(stream)
