"""How many processes read a sink, and which partitions each of them reads."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.verify import readers
from airflow_ckpt.verify.readers import MOST_READERS, RECORDS_EACH, divide, merge
from airflow_ckpt.verify.sink_scan import Boundaries, Scan, Sums

pytestmark = pytest.mark.unit

MANY = 100 * RECORDS_EACH


@pytest.mark.parametrize(
    ("sizes", "processors", "readers"),
    [
        ({}, 8, 1),
        ({0: MANY}, 8, 1),
        ({0: MANY, 1: MANY}, 1, 1),
        ({0: MANY, 1: MANY}, 8, 2),
        (dict.fromkeys(range(50), MANY), 3, 3),
        (dict.fromkeys(range(50), MANY), 64, MOST_READERS),
        ({0: RECORDS_EACH, 1: RECORDS_EACH - 1}, 8, 1),
        ({0: RECORDS_EACH, 1: RECORDS_EACH}, 8, 2),
    ],
)
def test_there_are_as_many_readers_as_are_worth_it(sizes: dict[int, int], processors: int, readers: int) -> None:
    assert len(divide(sizes, processors)) == readers


def test_every_partition_is_read_once_and_the_loads_are_even() -> None:
    sizes = {0: 9 * MANY, 1: MANY, 2: 4 * MANY, 3: 3 * MANY, 4: 2 * MANY, 5: 7 * MANY}
    first, second = divide(sizes, 2)
    assert sorted(first + second) == sorted(sizes)
    assert sum(sizes[p] for p in first) == sum(sizes[p] for p in second)


def test_sums_of_a_batch_in_several_partitions_are_added_up() -> None:
    one = Scan(batches={None: Sums(1, 5, 1), 3: Sums(2, 2**64 - 1, 2)}, records=3)
    two = Scan(batches={3: Sums(4, 3, 2**64 - 1), 4: Sums(1, 1)}, records=5)
    found = merge("sink", [one, two])
    assert found.batches == {None: Sums(1, 5, 1), 3: Sums(6, 2, 1), 4: Sums(1, 1)}
    assert (found.topic, found.records) == ("sink", 8)


def test_a_setting_that_is_a_function_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def here(*order: Any) -> Scan:
        calls.append(order)
        return Scan(records=7)

    monkeypatch.setattr(readers, "scan", here)
    monkeypatch.setattr(readers, "_processors", lambda: 8)
    ends = {0: MANY, 1: MANY}
    found = readers.scan_sums({"oauth_cb": print}, "sink", {}, ends, Boundaries({0: [0], 1: [0]}))
    assert found.records == 7
    assert len(calls) == 1
