"""Settings that would break exactly-once are refused, in every spelling that Spark would accept."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.errors import UnsafeSetting
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark.unsafe_settings import FORBIDDEN, IGNORE_LEDGER, refuse_unsafe_settings

pytestmark = pytest.mark.unit


def config(**settings: Any) -> StreamConfig:
    kafka = {"bootstrap.servers": "localhost:9092"}
    return StreamConfig(
        name="orders", checkpoint="/data/orders", source=("orders-in",), sink="orders-out", kafka=kafka, **settings
    )


def with_options(**options: str) -> StreamConfig:
    return config(source_options=options)


def test_forbidden_options_are_listed_in_lower_case() -> None:
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
        refuse_unsafe_settings(with_options(**{name: value}), {}, {})
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
def test_an_option_that_breaks_nothing_may_be_set(name: str, value: str) -> None:
    refuse_unsafe_settings(with_options(**{name: value}), {}, {})


def test_an_environment_that_asks_to_ignore_the_ledger_is_refused_by_name() -> None:
    with pytest.raises(UnsafeSetting) as refused:
        refuse_unsafe_settings(config(), {}, {IGNORE_LEDGER: "1"})
    assert IGNORE_LEDGER in refused.value.helps
    refuse_unsafe_settings(config(), {}, {IGNORE_LEDGER: "", "PATH": "/bin"})
