"""How a batch's rows are divided into lanes, and what a batch is of which not every lane has answered."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.driver import exactly_once
from ckpt_stream.driver.exactly_once import MANY_OFFSETS, ExactlyOnceWriter, into_lanes
from ckpt_stream.errors import StreamError
from tests.ckpt_stream.driver.lane_writes import spec

pytestmark = pytest.mark.unit

Record = tuple[bytes | None, bytes]
RECORDS: tuple[Record, ...] = (
    (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (None, b"4"), (b"c", b"5"), (None, b"6"), (b"b", b"7"), (None, b"4"), (b"d", b"8")
)  # fmt: skip


class Rows:
    """Rows in tasks, which Spark moves as it is asked to: by a column, or else in the order in which they come."""

    columns = ("key", "value")

    def __init__(self, records: Iterable[Record], answers: Iterable[int] = ()) -> None:
        self.tasks: list[list[Record]] = [[record] for record in records]
        #: The lanes that answer.
        self.answers = answers
        self.moved = False

    def select(self, *columns: Any) -> Rows:
        return self

    def repartition(self, number: int, column: Callable[[Record], bytes] | None = None) -> Rows:
        records = [record for task in self.tasks for record in task]
        places = [n if column is None else zlib.crc32(column(record)) for n, record in enumerate(records)]
        self.tasks = [[r for r, p in zip(records, places, strict=True) if p % number == task] for task in range(number)]
        self.moved = True
        return self

    def coalesce(self, number: int) -> Rows:
        assert number == 1
        self.tasks = [[record for task in self.tasks for record in task]]
        return self

    def mapInArrow(self, function: Any, schema: str) -> Any:
        return SimpleNamespace(collect=lambda: [Row(lane=lane, records=10 * lane) for lane in self.answers])


class Row(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:
        return dict(self)


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column is a function of a record."""

    def first_of(*names: str) -> Callable[[Record], bytes]:
        return lambda record: next(value for name in names if (value := record[Rows.columns.index(name)]) is not None)

    monkeypatch.setattr("pyspark.sql.functions.coalesce", first_of)
    monkeypatch.setattr(exactly_once, "_lane_columns", lambda names, ledger_format: [])


def lanes_of(records: Iterable[Record], lanes: int) -> list[list[Record]]:
    divided: Any = into_lanes(Rows(records), lanes, 0)  # type: ignore[arg-type]
    return [sorted(task, key=repr) for task in divided.tasks]


# The division


@pytest.mark.parametrize("lanes", [2, 3])
def test_a_replay_puts_each_row_into_the_same_lane_in_whatever_order_the_rows_come(lanes: int) -> None:
    first = lanes_of(RECORDS, lanes)
    assert sum(map(bool, first)) > 1, "the rows are divided"
    for n in range(len(RECORDS)):
        assert lanes_of(RECORDS[n:] + RECORDS[:n], lanes) == first


def test_the_rows_of_one_key_are_in_one_lane() -> None:
    divided: Any = into_lanes(Rows((b"k", b"%d" % n) for n in range(20)), 2, 0)  # type: ignore[arg-type]
    assert [[value for _, value in task] for task in divided.tasks if task] == [[b"%d" % n for n in range(20)]]


def test_rows_without_a_key_are_divided_by_their_value() -> None:
    assert all(lanes_of([(None, b"%d" % n) for n in range(20)], 2))


@pytest.mark.parametrize(("offsets", "moved"), [(MANY_OFFSETS - 1, False), (MANY_OFFSETS, True)])
def test_a_single_lane_takes_all_rows_and_many_are_read_with_all_cores_before(offsets: int, moved: bool) -> None:
    rows = Rows(RECORDS, answers=[0])
    begin, half = {"orders": {"0": 7}}, offsets // 2
    end = {"orders": {"0": 7 + half}, "new": {"0": offsets - half}}
    ExactlyOnceWriter()(rows, spec(start=begin, end=end))  # type: ignore[arg-type]
    assert (rows.tasks, rows.moved) == ([list(RECORDS)], moved)


# The answers


@pytest.mark.parametrize(
    "answers",
    [(), (0, 1), (0, 1, 1), (0, 1, 2, 2), (0, 1, 3), (0, 1, 2, 3)],
    ids=["none", "one is missing", "one twice for another", "one twice", "an unknown one for another", "one too many"],
)
def test_a_batch_is_not_written_unless_each_lane_has_answered_once(answers: tuple[int, ...]) -> None:
    with pytest.raises(StreamError):
        ExactlyOnceWriter()(Rows(RECORDS, answers), spec(lanes=3))  # type: ignore[arg-type]


def test_the_answers_are_in_the_order_of_the_lanes() -> None:
    results = ExactlyOnceWriter()(Rows(RECORDS, (2, 0, 1)), spec(lanes=3))  # type: ignore[arg-type]
    assert [(result["lane"], result["records"]) for result in results] == [(0, 0), (1, 10), (2, 20)]
