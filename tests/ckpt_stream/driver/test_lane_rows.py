"""The rows of a lane on their way: what they add up to, what a replay must repeat, and a record that Kafka refuses."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.driver.lane_sums import LaneSums
from ckpt_stream.errors import SinkRejected
from ckpt_stream.protocol.ledger.checksum import add, weighted_checksum
from tests.ckpt_stream.driver.lane_writes import DEAD, LEDGER, SINK, ledger, rows, spec, write
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def topics(broker: FakeBroker) -> FakeBroker:
    broker.topic(SINK, 2)
    broker.topic(DEAD)
    broker.topic(LEDGER)
    return broker


def test_a_dead_letter_counts_neither_for_the_sink_nor_for_its_partitions() -> None:
    sums = LaneSums()
    sums.add(rows("a", "b", "c", dead_letter=[False, True, False], partition=[1, 1, 0]))
    assert (sums.records, sums.checksum) == (2, ord("a") + ord("c"))
    assert (sums.dead_letters, sums.dead_letter_checksum) == (1, ord("b"))
    assert sums.placed == add(weighted_checksum(ord("a"), 1), weighted_checksum(ord("c"), 0))


def test_rows_add_up_to_the_same_in_any_number_of_arrow_batches() -> None:
    whole, parts = LaneSums(), LaneSums()
    columns: dict[str, Any] = {"dead_letter": [False, True, False], "partition": [1, 1, 0]}
    whole.add(rows("a", "b", "c", **columns))
    for n, value in enumerate("abc"):
        parts.add(rows(value, **{name: [column[n]] for name, column in columns.items()}))
    assert parts == whole


def test_partitions_that_kafkas_client_chooses_once_have_no_sum_for_the_whole_lane() -> None:
    sums = LaneSums()
    sums.add(rows("a", partition=[None]))
    sums.add(rows("b", partition=[1]))
    assert sums.placed is None


def test_a_replay_is_not_compared_by_partition_with_a_lane_of_format_1(broker: FakeBroker) -> None:
    """That format has no field for it."""
    columns = {"partition": [1, 0]}
    write(spec(ledger_format=1), rows("a", "b", **columns))
    assert ledger(broker)[0].placed is None
    assert write(spec(ledger_format=1), rows("a", "b", **columns))["differs"] is False


def test_a_record_that_the_client_refuses_at_once_ends_the_lane_with_what_helps(broker: FakeBroker) -> None:
    broker.fail("produce", *[kafka_error("MSG_SIZE_TOO_LARGE")] * 2)
    with pytest.raises(SinkRejected):
        write(spec())
    assert broker.values(SINK) == []
