"""The rows of a lane, and the proof that all of them have arrived.

The end of an iterator is no proof. If the JVM's side of a task's input fails, Spark closes the connection to the Python
worker; if that happens between two Arrow batches, pyarrow treats it as the end of the stream. The JVM writes END_OF_STREAM after
the Arrow stream only if it has read its input to the end. This module looks for that mark without taking it, because Spark's own
worker reads it at the end of the task.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ckpt_stream.errors import EndOfInputUnknown, InputIncomplete

log = logging.getLogger("ckpt_stream")

#: Spark's END_OF_STREAM, the number -4 as Java writes it.
END_OF_STREAM = (-4).to_bytes(4, "big", signed=True)


class LaneInput:
    """The Arrow record batches of a lane, to be read once, from the first to the last."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)
        self._streams: list[Any] = []
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        # Spark opens the Arrow stream when it is asked for the first batch.
        with _record_opened_streams(self._streams):
            first = list(_take_one(self._batches))
        yield from first
        yield from self._batches
        self._ended = True

    def require_end(self) -> None:
        """Return if Spark has marked the end of the input. Raises InputIncomplete or EndOfInputUnknown otherwise; then nothing
        may be committed."""
        if not self._ended:
            raise InputIncomplete("The lane did not read its input to the end. Nothing of it was committed.")
        if len(self._streams) != 1:
            raise EndOfInputUnknown(
                _unknown(f"the lane's rows came from {len(self._streams)} Arrow streams, not from one")
            )
        follows = _look_ahead(self._streams[0], len(END_OF_STREAM))
        if follows == END_OF_STREAM:
            return
        if len(follows) < len(END_OF_STREAM):
            error = InputIncomplete(
                "Spark ended the lane's input before it was complete: another part of the job failed or was cancelled, or "
                "the driver or executor ended. Nothing of the lane was committed, and the next attempt writes it whole."
            )
            log.warning("%s", error)  # Spark has closed the connection, so the driver does not receive the error itself
            raise error
        raise EndOfInputUnknown(_unknown(f"the Arrow stream is followed by {follows!r} instead of END_OF_STREAM"))


def _take_one(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        return


@contextmanager
def _record_opened_streams(opened: list[Any]) -> Iterator[None]:
    """Record which streams pyarrow opens: Spark gives a task its rows, but not the stream that they come from."""
    import pyarrow as pa

    original = pa.ipc.open_stream

    def open_stream(source: Any, *args: Any, **options: Any) -> Any:
        opened.append(source)
        return original(source, *args, **options)

    pa.ipc.open_stream = open_stream
    try:
        yield
    finally:
        pa.ipc.open_stream = original


def _look_ahead(stream: Any, count: int) -> bytes:
    """The next bytes of a worker's input, without taking them; fewer only if the input ends before."""
    try:
        found = bytes(stream.peek(count)[:count])
        if 0 < len(found) < count:  # the buffer ends here: the rest is still in the socket
            with socket.socket(fileno=os.dup(stream.fileno())) as connection:
                found += connection.recv(count - len(found), socket.MSG_PEEK | socket.MSG_WAITALL)
        return found
    except ConnectionError:
        return b""
    except (AttributeError, OSError, ValueError) as e:
        raise EndOfInputUnknown(_unknown(f"the worker's input cannot be read ahead ({type(e).__name__}: {e})")) from e


def _unknown(found: str) -> str:
    import pyspark

    return (
        f"PySpark {pyspark.__version__} sends rows to its Python workers in a way that this version does not know: {found}. So "
        "it is unknown whether all rows of the lane arrived, and nothing was committed. What helps: install a version of "
        "PySpark that airflow-ckpt was tested with, or a newer airflow-ckpt."
    )
