"""Where a record has its id, and what the ids of a topic tell."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.verify import id_check
from airflow_ckpt.verify.id_check import (
    Ids,
    check_aliens,
    check_duplicates,
    check_expected,
    check_holes,
    check_lost,
    check_without,
)
from airflow_ckpt.verify.ids import id_reader

pytestmark = pytest.mark.unit


@dataclass
class Message:
    of_key: bytes | None = None
    of_value: bytes | None = None
    of_headers: list[tuple[str, bytes]] = field(default_factory=list)

    def key(self) -> bytes | None:
        return self.of_key

    def value(self) -> bytes | None:
        return self.of_value

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self.of_headers or None


@pytest.mark.parametrize(
    ("path", "message", "expected"),
    [
        ("key", Message(b"k"), b"k"),
        ("key", Message(None), None),
        ("value", Message(of_value=b""), b""),
        ("header:id", Message(of_headers=[("x", b"0"), ("id", b"7"), ("id", b"8")]), b"7"),
        ("header:id", Message(), None),
        ("$.id", Message(of_value=b'{"id": "a"}'), b"a"),
        ("$.id", Message(of_value=b'{"id": 5}'), b"5"),
        ("$.id", Message(of_value=b'{"id": 0.10}'), b"0.10"),
        ("$.id", Message(of_value=b'{"id": 12345678901234567890123}'), b"12345678901234567890123"),
        ("$.id", Message(of_value=b'{"id": null}'), None),
        ("$.id", Message(of_value=b'{"id": true}'), b"true"),
        ("$.id", Message(of_value=b"{}"), None),
        ("$.id", Message(of_value=b"not json"), None),
        ("$.id", Message(of_value=b'"text"'), None),
        ("$.id", Message(of_value=b"\xff"), None),
        ("$.id", Message(of_value=None), None),
        ("$.order.items[1].id", Message(of_value=b'{"order": {"items": [{}, {"id": "x"}]}}'), b"x"),
        ("$.order.items[1].id", Message(of_value=b'{"order": {"items": [{}]}}'), None),
        ("$[0]", Message(of_value=b'["first"]'), b"first"),
        ("$[0]", Message(of_value=b'"first"'), None),
        ("$.a", Message(of_value=b'{"a": {"y": 1, "x": 2}}'), b'{"x": "2", "y": "1"}'),
    ],
)
def test_an_id_is_found_where_the_path_says(path: str, message: Message, expected: bytes | None) -> None:
    assert id_reader(path)(message) == expected


@pytest.mark.parametrize("path", ["", "id", "$", "header:", "$.a..b", "$.a[x]", "$a", "Key", "$.a[0"])
def test_a_path_that_names_nothing_is_refused(path: str) -> None:
    with pytest.raises(CkptError, match="names no part of a record"):
        id_reader(path)


def ids(*found: object, topic: str = "sink", sequence: bool = False, partitions: int = 1) -> Ids:
    """Ids one after the other, dealt out to the partitions; None is a record without one."""
    kept = Ids(topic, sequence)
    for i, one in enumerate(found):
        kept.add(None if one is None else str(one).encode(), (i % partitions, i // partitions))
    return kept


def test_each_copy_but_the_first_is_a_duplicate_with_its_place() -> None:
    count, findings = check_duplicates(ids("a", "b", "a", "c", "a"))
    assert count == 2
    assert [(f.partition, f.offset) for f in findings] == [(0, 2), (0, 4)]
    assert all("the one at sink-0 offset 0" in f.what for f in findings)
    assert check_duplicates(ids("a", "b", "c")) == (0, [])
    assert check_duplicates(ids()) == (0, [])


def test_faults_without_end_are_counted_and_not_all_listed() -> None:
    count, findings = check_duplicates(ids(*["a"] * 100))
    assert count == 99
    assert len(findings) == id_check.LISTED + 1
    assert sum(f.records or 0 for f in findings) == 99


def test_holes_lie_between_the_least_and_the_largest() -> None:
    assert check_holes(ids(5, 3, 4, sequence=True)) == (0, [])
    count, findings = check_holes(ids(-2, 9, 3, 1, sequence=True))
    assert count == 8
    assert [f.what for f in findings] == [
        "The 2 ids -1 to 0 are missing between the least and the largest.",
        "The id 2 is missing between the least and the largest.",
        "The 5 ids 4 to 8 are missing between the least and the largest.",
    ]
    assert check_holes(ids(-(2**63), 2**63 - 1, sequence=True))[0] == 2**64 - 2
    assert check_holes(ids(sequence=True)) == (0, [])


def test_what_is_no_whole_number_has_no_place_in_a_sequence() -> None:
    kept = ids(1, "x", 2**63, 1.5, None, 3, sequence=True)
    assert (kept.without, len(kept.marks), kept.records) == (4, 2, 6)
    (finding,) = check_without(kept)
    assert (finding.kind, finding.records, finding.violation) == ("no_id", 4, False)


def test_expected_ids_are_lost_or_alien() -> None:
    (lost, missing), (alien, others) = check_expected(ids("a", "b", "x", "b"), iter(["a", b"b", "c", 7]))
    assert (lost, alien) == (2, 1)
    assert "c, 7" in missing[0].what
    assert [(f.kind, f.offset) for f in others] == [("alien", 2)]
    assert check_expected(ids(), []) == ((0, []), (0, []))
    assert check_expected(ids(), ["a"])[0][0] == 1
    assert check_expected(ids(1, sequence=True), ["one", 1])[0][0] == 1


def test_a_gap_is_lost_where_something_later_was_delivered_and_else_not_there_yet() -> None:
    source = ids("a", "b", "c", "d", topic="source")
    (lost, findings), waiting = check_lost(ids("a", "c"), source, {0: 4}, certain=False)
    assert (lost, [f.offset for f in findings]) == (1, [1])
    assert [(f.kind, f.records, f.violation) for f in waiting] == [("not_there_yet", 1, False)]
    (lost, findings), waiting = check_lost(ids("a", "c"), source, {0: 4}, certain=True)
    assert (lost, [f.offset for f in findings], waiting) == (2, [1, 3], [])
    (lost, _), waiting = check_lost(ids("a", "c"), source, {0: 3}, certain=True)
    assert (lost, waiting) == (1, []), "what the group has not committed is not missed"
    assert check_lost(ids(), ids(topic="source"), {}, certain=True) == ((0, []), [])


def test_an_id_that_the_source_does_not_have_is_alien() -> None:
    count, findings = check_aliens(ids("a", "x"), ids("a", "b", topic="source"))
    assert (count, [f.offset for f in findings]) == (1, [1])


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_lost_duplicated_and_alien_agree_with_a_count_by_hand(there: list[int], wanted: list[int]) -> None:
    sink = ids(*there, partitions=3)
    assert check_duplicates(sink)[0] == len(there) - len(set(there))
    (lost, _), (alien, _) = check_expected(sink, wanted)
    assert lost == sum(one not in there for one in wanted)
    assert alien == sum(one not in wanted for one in there)
    numbers = ids(*there, sequence=True)
    assert check_holes(numbers)[0] == (max(there) - min(there) + 1 - len(set(there)) if there else 0)
