"""The proof that a lane has read all of its rows, over a socket like that of Spark's worker."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ckpt_stream.driver.end_of_input import END_OF_STREAM, LaneInput
from ckpt_stream.errors import EndOfInputUnknown, InputIncomplete
from tests.ckpt_stream.driver.spark_worker import arrow, loaded, worker_input

pytestmark = pytest.mark.unit

ROWS = [pa.record_batch({"value": [f"{batch}-{i}" for i in range(5)]}) for batch in range(4)]


def values(rows: LaneInput) -> list[str]:
    return [value for batch in rows for value in batch.column("value").to_pylist()]


ALL = [f"{batch}-{i}" for batch in range(4) for i in range(5)]


@pytest.mark.parametrize("batches", [ROWS, ROWS[:1], []])
def test_an_input_that_sparks_mark_ends_is_complete_and_the_mark_stays_for_spark(batches: list[Any]) -> None:
    with worker_input(arrow(batches, closed=True, schema=ROWS[0].schema) + END_OF_STREAM + b"more") as stream:
        rows = LaneInput(loaded(stream))
        assert values(rows) == ALL[: 5 * len(batches)]
        rows.require_end()
        rows.require_end()
        assert stream.read(8) == END_OF_STREAM + b"more"


@pytest.mark.parametrize(("count", "closed"), [(0, True), (1, True), (4, True), (1, False), (3, False), (4, False)])
def test_an_input_that_is_cut_between_two_batches_looks_complete_to_pyarrow_and_is_incomplete(
    count: int, closed: bool
) -> None:
    with worker_input(arrow(ROWS[:count], closed=closed, schema=ROWS[0].schema)) as stream:
        rows = LaneInput(loaded(stream))
        assert values(rows) == ALL[: 5 * count], "pyarrow finds no error"
        with pytest.raises(InputIncomplete):
            rows.require_end()


def test_the_end_of_rows_that_may_come_from_more_than_one_stream_is_unknown() -> None:
    """The mark after one of them would prove nothing about the others."""

    def of_two_streams(stream: Any) -> Iterator[Any]:
        found = pa.ipc.open_stream(stream)
        pa.ipc.open_stream(io.BytesIO(arrow(ROWS[:1], closed=True)))
        yield from found

    with worker_input(arrow(ROWS, closed=True) + END_OF_STREAM) as stream:
        rows = LaneInput(of_two_streams(stream))
        assert values(rows) == ALL
        with pytest.raises(EndOfInputUnknown):
            rows.require_end()


@pytest.mark.parametrize("length", range(1, 4))
def test_an_input_that_is_cut_within_sparks_mark_is_incomplete(length: int) -> None:
    with worker_input(arrow(ROWS, closed=True) + END_OF_STREAM[:length]) as stream:
        rows = LaneInput(loaded(stream))
        assert values(rows) == ALL
        with pytest.raises(InputIncomplete):
            rows.require_end()


@pytest.mark.parametrize("at", range(1, 4))
@pytest.mark.parametrize("rest", [b"", b"more"])
def test_the_mark_is_found_wherever_the_workers_buffer_ends(at: int, rest: bytes) -> None:
    stream_bytes = arrow(ROWS, closed=True)
    # The buffer is filled once, and its end is within the mark.
    with worker_input(stream_bytes + END_OF_STREAM + rest, buffer=len(stream_bytes) + at) as stream:
        rows = LaneInput(loaded(stream))
        assert values(rows) == ALL
        rows.require_end()
        assert stream.read() == END_OF_STREAM + rest


def test_a_mark_whose_end_arrives_late_is_waited_for() -> None:
    jvm, worker = socket.socketpair()
    data = arrow(ROWS, closed=True)
    with jvm, worker, worker.makefile("rb", len(data) + 2) as stream:
        jvm.sendall(data + END_OF_STREAM[:2])
        rows = LaneInput(loaded(stream))
        assert values(rows) == ALL
        timer = threading.Timer(0.05, jvm.sendall, [END_OF_STREAM[2:]])
        timer.start()
        rows.require_end()
        timer.join()


def test_anything_else_after_the_rows_is_no_proof() -> None:
    with worker_input(arrow(ROWS, closed=True) + (-1).to_bytes(4, "big", signed=True)) as stream:
        rows = LaneInput(loaded(stream))
        assert values(rows) == ALL
        with pytest.raises(EndOfInputUnknown) as refusal:
            rows.require_end()
        assert refusal.value.restart_may_help is False


def test_an_input_that_was_not_read_to_its_end_is_incomplete() -> None:
    with worker_input(arrow(ROWS, closed=True) + END_OF_STREAM) as stream:
        rows = LaneInput(loaded(stream))
        next(iter(rows))
        with pytest.raises(InputIncomplete):
            rows.require_end()


def test_rows_that_come_from_no_arrow_stream_are_not_committed() -> None:
    rows = LaneInput(iter(ROWS))
    assert values(rows) == ALL
    with pytest.raises(EndOfInputUnknown, match=r"\b0\b"):
        rows.require_end()


def test_a_stream_that_cannot_be_read_ahead_gets_nothing_committed() -> None:
    stream = pa.BufferReader(arrow(ROWS, closed=True) + END_OF_STREAM)
    rows = LaneInput(loaded(stream))
    assert values(rows) == ALL
    with pytest.raises(EndOfInputUnknown, match="AttributeError"):
        rows.require_end()


def test_pyarrow_is_left_as_it_was() -> None:
    before = pa.ipc.open_stream
    with worker_input(arrow(ROWS, closed=True) + END_OF_STREAM) as stream:
        rows = iter(LaneInput(loaded(stream)))
        next(rows)
        assert pa.ipc.open_stream is before
    with worker_input(b"not an Arrow stream at all") as stream, pytest.raises(pa.ArrowInvalid):
        list(LaneInput(loaded(stream)))
    assert pa.ipc.open_stream is before
