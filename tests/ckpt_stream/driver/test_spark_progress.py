"""What the driver reads in Spark's progress reports."""

from __future__ import annotations

import pytest

from ckpt_stream.driver.spark_progress import lag_of, waits_for_input

pytestmark = pytest.mark.unit


def test_lag_is_what_was_unread_when_the_batch_was_planned() -> None:
    source = {"latestOffset": {"t": {"0": 30, "1": 5}}, "endOffset": {"t": {"0": 10, "1": 5}}}
    assert lag_of([source]) == 20
    assert lag_of([source, source]) == 40


def test_a_batch_that_was_planned_behind_the_offsets_that_spark_reports_has_no_negative_lag() -> None:
    ahead = {"latestOffset": {"t": {"0": 5, "1": 9}}, "endOffset": {"t": {"0": 7, "1": 6}}}
    assert lag_of([ahead]) == 3


def test_lag_is_unknown_if_spark_does_not_report_it() -> None:
    assert lag_of([{"latestOffset": None, "endOffset": {"t": {"0": 1}}}]) is None
    assert lag_of([]) == 0


@pytest.mark.parametrize(
    ("message", "available", "waits"),
    [
        ("Waiting for data to arrive", False, True),
        ("Waiting for next trigger", False, True),
        ("Waiting for next trigger", True, False),
        ("Processing new data", True, False),
        ("Getting offsets from KafkaV2[Subscribe[t]]", False, False),
        ("Initializing sources", False, False),
    ],
)
def test_only_a_query_that_looked_and_found_nothing_waits_for_input(message: str, available: bool, waits: bool) -> None:
    status = {"message": message, "isDataAvailable": available, "isTriggerActive": False}
    assert waits_for_input(status) is waits
