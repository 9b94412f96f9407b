"""What the driver's watch makes of Spark's progress."""

from __future__ import annotations

import pytest

from ckpt_stream.watch import lag_of

pytestmark = pytest.mark.unit


def test_lag_is_what_was_left_unread_when_the_batch_was_planned() -> None:
    source = {"latestOffset": {"t": {"0": 30, "1": 5}}, "endOffset": {"t": {"0": 10, "1": 5}}}
    assert lag_of([source]) == 20
    assert lag_of([source, source]) == 40


def test_lag_is_unknown_where_spark_does_not_tell_it() -> None:
    assert lag_of([{"latestOffset": None, "endOffset": {"t": {"0": 1}}}]) is None
    assert lag_of([]) == 0
