"""What counts as a fault of the sink, and how examples of it are shown. The counts are SQL, which sqlite evaluates here."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_stream.verify.record_comparison import FAULTS, TEXT, examples_by_place

pytestmark = pytest.mark.unit

records = st.lists(st.sampled_from("abcd"), max_size=12)


def faults(expected: int, found: int) -> dict[str, int]:
    """Of one key and value."""
    query = f"SELECT {', '.join(FAULTS.values())} FROM (SELECT ? AS e, ? AS f)"  # noqa: S608 - constants of ours
    with closing(sqlite3.connect(":memory:")) as database:
        counts = database.execute(query, (expected, found)).fetchone()
    return {kind: count for kind, count in zip(FAULTS, counts, strict=True) if count}


@pytest.mark.parametrize(
    ("expected", "found", "wrong"),
    [
        (1, 1, {}),
        (3, 3, {}),
        (1, 0, {"lost": 1}),
        (3, 1, {"lost": 2}),
        (1, 2, {"duplicated": 1}),
        (2, 5, {"duplicated": 3}),
        (0, 1, {"alien": 1}),
        (0, 4, {"alien": 4}),
    ],
)
def test_a_record_is_lost_duplicated_or_alien_as_often_as_the_sink_differs(
    expected: int, found: int, wrong: dict[str, int]
) -> None:
    assert faults(expected, found) == wrong


@given(records, records)
def test_the_faults_of_all_records_turn_what_is_expected_into_what_is_found(expected: str, found: str) -> None:
    claimed, there = Counter(expected), Counter(found)
    total: Counter[str] = Counter()
    for record in claimed | there:
        wrong = faults(claimed[record], there[record])
        assert len(wrong) <= 1, "a record is counted under one kind"
        total.update(wrong)
    assert len(expected) - total["lost"] + total["duplicated"] + total["alien"] == len(found)
    assert (total == Counter()) is (claimed == there)


def worst(h1: int, h2: int, partition: int | None = None, offset: int | None = None, records: int = 1) -> Any:
    place = None if partition is None else {"partition": partition, "offset": offset}
    return {"h1": h1, "h2": h2, "records": records, "place": place}


def text(h1: int, h2: int, key: bytes | None, value: bytes | None) -> Any:
    return {"h1": h1, "h2": h2, "key": key, "value": value}


def test_an_example_names_the_record_its_number_and_its_place() -> None:
    (example,) = examples_by_place("duplicated", [worst(1, 2, 3, 40, records=5)], [text(1, 2, b"k", b"v")])
    assert example == {
        "kind": "duplicated", "records": 5, "key": "k", "value": "v", "partition": 3, "offset": 40
    }  # fmt: skip


def test_a_lost_record_has_no_place() -> None:
    (example,) = examples_by_place("lost", [worst(1, 2)], [text(1, 2, None, b"v")])
    assert (example["key"], example["value"], example["partition"], example["offset"]) == (None, "v", None, None)


def test_a_record_that_shares_only_the_first_hash_with_a_fault_is_no_example() -> None:
    others = [text(1, 9, b"x", b""), text(1, 2, b"k", b"")]
    assert [e["key"] for e in examples_by_place("alien", [worst(1, 2)], others)] == ["k"]


def test_examples_are_in_the_order_of_the_sink() -> None:
    places = [(1, 5), (0, 7), (1, 2), (0, 30)]
    found = [worst(n, n, *place) for n, place in enumerate(places)]
    examples = examples_by_place("alien", found, [text(n, n, b"k", b"v") for n in range(4)])
    assert [(e["partition"], e["offset"]) for e in examples] == sorted(places)


def test_examples_without_a_place_are_in_the_order_of_their_keys() -> None:
    texts = [text(0, 0, b"b", b""), text(1, 1, None, b""), text(2, 2, b"a", b"")]
    examples = examples_by_place("lost", [worst(n, n) for n in range(3)], texts)
    assert [e["key"] for e in examples] == [None, "a", "b"]


def test_a_long_value_is_cut_and_one_that_is_no_text_is_shown_all_the_same() -> None:
    (example,) = examples_by_place(
        "alien", [worst(1, 2, 0, 0)], [text(1, 2, bytearray(b"\xff\x00k"), b"v" * (TEXT + 1))]
    )
    assert (example["key"], example["value"]) == ("\ufffd\x00k", "v" * TEXT)
