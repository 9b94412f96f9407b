"""The options of Spark's Kafka reader: what it reads, from where, and what no user's option can change."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.errors import SinkError
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark import source
from ckpt_stream.spark.source import FETCH_DEFAULTS, read, reader_options, start_options
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "localhost:9092"}
PARTITIONS = {"orders": [0, 1], "returns": [0]}


def config(**settings: Any) -> StreamConfig:
    values: dict[str, Any] = {"source": ("orders", "returns"), **settings}
    return StreamConfig(name="shop", checkpoint="c", sink="out", kafka=KAFKA, **values)


def offsets(options: dict[str, str]) -> Any:
    assert list(options) == ["startingOffsets"]
    return json.loads(options["startingOffsets"])


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_named_end_of_the_topics_is_given_to_spark_as_it_is(start: str) -> None:
    assert start_options(config(start=start), KAFKA, PARTITIONS, None) == {"startingOffsets": start}


def test_a_start_by_time_begins_at_the_end_of_a_partition_without_a_later_record() -> None:
    options = start_options(config(start="timestamp", start_timestamp_ms=1_700_000_000_000), KAFKA, PARTITIONS, None)
    assert options == {"startingTimestamp": "1700000000000", "startingOffsetsByTimestampStrategy": "latest"}


def test_an_explicit_start_names_every_partition_and_begins_at_the_first_offset_of_the_others() -> None:
    start = config(start="explicit", start_offsets={"orders": {"1": 7}})
    assert offsets(start_options(start, KAFKA, PARTITIONS, None)) == {
        "orders": {"0": -2, "1": 7}, "returns": {"0": -2}
    }  # fmt: skip


def test_a_start_at_the_ledger_begins_where_the_adopted_ledger_ends() -> None:
    end = {"orders": {"0": 5, "1": 6}, "gone": {"0": 9}}
    assert offsets(start_options(config(start="ledger"), KAFKA, PARTITIONS, end)) == {
        "orders": {"0": 5, "1": 6}, "returns": {"0": -2}
    }  # fmt: skip


def test_a_start_at_the_ledger_without_a_ledger_begins_at_the_first_offsets() -> None:
    assert offsets(start_options(config(start="ledger"), KAFKA, {"orders": [0]}, None)) == {"orders": {"0": -2}}


def test_a_start_at_the_group_begins_at_the_groups_committed_offsets(broker: FakeBroker) -> None:
    for topic, numbers in PARTITIONS.items():
        broker.topic(topic, len(numbers))
    broker.groups["shop"] = {("orders", 0): 12, ("returns", 0): 0}
    assert offsets(start_options(config(start="group"), KAFKA, PARTITIONS, None)) == {
        "orders": {"0": 12, "1": -2}, "returns": {"0": 0}
    }  # fmt: skip


def test_a_group_that_the_user_may_not_read_is_an_error_that_names_the_group(broker: FakeBroker) -> None:
    broker.topic("orders")
    broker.fail("committed", kafka_error("GROUP_AUTHORIZATION_FAILED"))
    with pytest.raises(SinkError, match="shop"):
        start_options(config(start="group"), KAFKA, {"orders": [0]}, None)


def test_the_reader_subscribes_to_the_topics_or_to_the_pattern() -> None:
    assert reader_options(config(), KAFKA)["subscribe"] == "orders,returns"
    options = reader_options(config(source=(), source_pattern="shop_.*"), KAFKA)
    assert (options["subscribePattern"], options.get("subscribe")) == ("shop_.*", None)


def test_the_reader_gets_kafkas_settings_and_our_fetch_sizes_which_a_user_may_change() -> None:
    options = reader_options(config(), KAFKA)
    assert options["kafka.bootstrap.servers"] == "localhost:9092"
    assert FETCH_DEFAULTS.items() <= options.items()
    smaller = reader_options(config(source_options={"kafka.max.poll.records": "10"}), KAFKA)
    assert smaller["kafka.max.poll.records"] == "10"


@pytest.mark.parametrize(("over_accepted_loss", "fails"), [(False, "true"), (True, "false")])
def test_the_reader_fails_on_lost_records_except_over_an_accepted_loss(over_accepted_loss: bool, fails: str) -> None:
    options = reader_options(config(), KAFKA, over_accepted_loss=over_accepted_loss)
    assert options["failOnDataLoss"] == fails


def test_no_option_of_a_user_reads_uncommitted_records_or_passes_over_lost_ones() -> None:
    ours = {"kafka.isolation.level": "read_uncommitted", "failOnDataLoss": "false"}
    options = reader_options(config(source_options=ours), KAFKA)
    assert (options["kafka.isolation.level"], options["failOnDataLoss"]) == ("read_committed", "true")


@pytest.mark.parametrize(
    ("settings", "option", "value"),
    [
        ({"max_offsets_per_batch": 100}, "maxOffsetsPerTrigger", "100"),
        ({"include_headers": True}, "includeHeaders", "true"),
    ],
)
def test_a_setting_of_the_stream_is_an_option_of_the_reader(settings: dict[str, Any], option: str, value: str) -> None:
    assert option not in reader_options(config(), KAFKA)
    assert reader_options(config(**settings), KAFKA)[option] == value


def test_the_start_is_given_to_the_same_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}
    reader = SimpleNamespace(
        format=lambda kind: reader, options=lambda **o: given.update(o) or reader, load=lambda: "rows"
    )
    monkeypatch.setattr(source, "without_fallback", lambda rows: rows)
    spark: Any = SimpleNamespace(readStream=reader)
    assert read(spark, config(), KAFKA, {"startingOffsets": "latest"}) == "rows"
    assert given == {**reader_options(config(), KAFKA), "startingOffsets": "latest"}
