"""Poison records and an application's options, as far as they need no Spark."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_stream.spark.poison_records import find_poison, may_be_read
from ckpt_stream.spark.record_rules import TransformContext, option, transform_context

pytestmark = pytest.mark.unit

POISON = {"topic": "orders", "partition": 2, "offset": 41, "once": True, "reason": "the word ERROR"}


def marked(poison: object) -> str:
    return f"[USER_RAISED_EXCEPTION] ckpt-poison:{json.dumps(poison)} SQLSTATE: P0001\n\tat org.apache.spark.X"


def test_the_poison_record_is_found_in_the_text_of_an_exception() -> None:
    assert find_poison(marked(POISON)) == POISON


def test_a_record_is_found_by_its_place_alone() -> None:
    place = {"topic": "orders", "partition": 2, "offset": 41}
    assert find_poison(marked(place)) == place


def test_the_first_of_several_is_taken() -> None:
    assert find_poison(marked(POISON) + marked({**POISON, "offset": 99})) == POISON


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_a_reason_may_hold_any_characters_braces_and_quotes_included(reason: str) -> None:
    poison = {**POISON, "reason": reason}
    assert find_poison(marked(poison)) == poison


@pytest.mark.parametrize("reason", ["bad {price}", "}", '"}', "{{}}", 'ckpt-poison:{"topic": 1}'])
def test_a_reason_with_braces_does_not_hide_the_record(reason: str) -> None:
    assert find_poison(marked({**POISON, "reason": reason})) == {**POISON, "reason": reason}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KeyError: 'price'",
        "ckpt-poison:",
        "ckpt-poison:nonsense",
        "ckpt-poison:[1]",
        'ckpt-poison:{"topic": "orders"',
        'ckpt-poison:{"topic": "orders", "partition": 2}',
    ],
)
def test_a_text_without_a_whole_mark_names_no_record(text: str) -> None:
    assert find_poison(text) is None


def test_a_torn_mark_does_not_hide_a_whole_one() -> None:
    assert find_poison('ckpt-poison:{"topic": "ord' + marked(POISON)) == POISON


def test_options_are_the_applications_own_and_exist_only_while_its_transform_is_applied() -> None:
    assert option("window", 5) == 5
    with transform_context(TransformContext(options={"window": 10})):
        assert option("window", 5) == 10
        assert option("lateness") is None
        with transform_context(TransformContext()):
            assert option("window", 5) == 5
        assert option("window", 5) == 10
    assert option("window", 5) == 5


def test_options_are_gone_after_a_transform_that_failed() -> None:
    with pytest.raises(RuntimeError), transform_context(TransformContext(options={"window": 10})):
        raise RuntimeError
    assert option("window") is None


@pytest.mark.parametrize(
    ("committed", "readable"),
    [
        ({}, True),
        ({"orders": {"1": 100}}, True),
        ({"other": {"2": 100}}, True),
        ({"orders": {"2": 41}}, True),
        ({"orders": {"2": 42}}, False),
    ],
)
def test_a_record_may_be_read_until_a_later_offset_is_committed(
    committed: dict[str, dict[str, int]], readable: bool
) -> None:
    assert may_be_read(POISON, committed) is readable
