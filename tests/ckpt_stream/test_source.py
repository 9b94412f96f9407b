"""What a user may not set for the source, in whatever spelling Spark would take it."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.config import StreamConfig
from ckpt_stream.errors import UnsafeSetting
from ckpt_stream.source import FORBIDDEN, IGNORE_LEDGER, refuse_unsafe

pytestmark = pytest.mark.unit


def config(**settings: Any) -> StreamConfig:
    kafka = {"bootstrap.servers": "localhost:9092"}
    return StreamConfig("orders", "/data/orders", ("orders-in",), "orders-out", kafka, **settings)


def with_options(**options: str) -> StreamConfig:
    return config(source_options=options)


def test_the_table_is_in_the_spelling_that_names_are_compared_in() -> None:
    assert [name for name in FORBIDDEN if name != name.lower()] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failOnDataLoss", "false"),
        ("failondataloss", "false"),
        ("FAILONDATALOSS", "False"),
        ("KAFKA.isolation.level", "read_uncommitted"),
        ("kafka.Isolation.Level", "read_uncommitted"),
        ("asyncProgressTrackingEnabled", "true"),
        ("minPartitions", "12"),
        ("minpartitions", "12"),
        ("maxRecordsPerPartition", "1000"),
        ("MaxRecordsPerPartition", "1000"),
        ("Kafka.enable.auto.commit", "true"),
        ("StartingOffsets", "latest"),
        ("startingTimestamp", "0"),
        ("startingOffsetsByTimestamp", "{}"),
        ("Subscribe", "elsewhere"),
        ("subscribePattern", ".*"),
        ("assign", "{}"),
    ],
)
def test_an_option_that_breaks_the_guarantee_is_refused_in_every_spelling(name: str, value: str) -> None:
    with pytest.raises(UnsafeSetting) as refused:
        refuse_unsafe(with_options(**{name: value}), {}, {})
    assert name in refused.value.helps


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failOnDataLoss", "true"),
        ("FailOnDataLoss", "TRUE"),
        ("kafka.isolation.level", "read_committed"),
        ("kafka.max.partition.fetch.bytes", "1048576"),
        ("maxOffsetsPerTrigger", "1000"),
        ("groupIdPrefix", "mine"),
    ],
)
def test_what_breaks_nothing_may_be_set(name: str, value: str) -> None:
    refuse_unsafe(with_options(**{name: value}), {}, {})


def test_an_environment_that_asks_to_ignore_the_ledger_is_refused_by_name() -> None:
    with pytest.raises(UnsafeSetting, match=f"unset {IGNORE_LEDGER}"):
        refuse_unsafe(config(), {}, {IGNORE_LEDGER: "1"})
    refuse_unsafe(config(), {}, {IGNORE_LEDGER: "", "PATH": "/bin"})
