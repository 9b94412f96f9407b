"""Where a record has its id."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.verify.scan.record_ids import id_reader

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
    with pytest.raises(BadArgument, match=re.escape(repr(path))):
        id_reader(path)
