"""What is done to all lanes before the first batch: fenced, read, anchored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ckpt_stream.errors import Fenced, LedgerUndecided, SinkError, SinkRejected
from ckpt_stream.kafka.lane_control import fence_lanes, read_ledger_ends, write_anchors
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from tests.ckpt_stream.samples import about_to_write, held, sink_of
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit

LEDGER = "orders.ledger"
END = {"source": {"0": 40}}


@pytest.fixture
def ledger(broker: FakeBroker) -> FakeBroker:
    """A broker with a sink, and a ledger of two lanes that both end with batch 2."""
    broker.topic("orders-out")
    broker.topic(LEDGER, 2)
    for lane in range(2):
        write(broker, held(2, lane, 2))
    return broker


def write(broker: FakeBroker, record: LedgerRecord) -> None:
    partition = broker.partition(LEDGER, record.lane)
    partition.write(record.key, record.to_json())
    partition.mark()


def last_records(broker: FakeBroker) -> list[LedgerRecord | None]:
    return read_ledger_ends({}, LEDGER, len(broker.topics[LEDGER].partitions))


def anchor(seen: Mapping[int, LedgerRecord | None], lanes: int = 2) -> None:
    write_anchors({}, about_to_write(3, lanes), END, seen, run_id="run-2", application="2.0", timeout_ms=60_000)


def former_attempt(lane: int) -> Transaction:
    """A transaction of a former driver that has written batch 3 of a lane, and not committed it."""
    attempt = Transaction({}, f"orders-{lane}", 60_000, "orders-out")
    attempt.begin()
    record = held(3, lane, 2)
    attempt.produce(LEDGER, key=record.key, value=record.to_json(), partition=lane)
    attempt.flush()
    return attempt


def test_the_fence_aborts_the_open_transactions_of_all_lanes(ledger: FakeBroker) -> None:
    attempts = [former_attempt(lane) for lane in range(2)]
    assert [p.stable < p.high for p in ledger.topics[LEDGER].partitions] == [True, True]
    fence_lanes({}, sink_of(2), 2, 60_000)
    assert [p.stable == p.high for p in ledger.topics[LEDGER].partitions] == [True, True]
    assert last_records(ledger) == [held(2, 0, 2), held(2, 1, 2)]
    for attempt in attempts:
        with pytest.raises(Fenced):
            attempt.commit("commit", {})


def test_the_fence_reaches_lanes_that_the_stream_no_longer_has(ledger: FakeBroker) -> None:
    fence_lanes({}, sink_of(1), 2, 60_000)
    assert sorted(ledger.owners) == ["orders-0", "orders-1"]


def test_a_lane_that_cannot_be_fenced_is_an_error(ledger: FakeBroker) -> None:
    ledger.fail("init_transactions", kafka_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))
    with pytest.raises(SinkRejected, match="orders-"):
        fence_lanes({}, sink_of(2), 2, 60_000)


def test_a_ledger_without_partitions_has_no_records(broker: FakeBroker) -> None:
    assert read_ledger_ends({}, LEDGER, 0) == []
    assert broker.calls == []


def test_a_lane_without_a_record_is_read_as_none(ledger: FakeBroker) -> None:
    ledger.topic(LEDGER, 3)
    write(ledger, held(5, 1, 2))
    assert last_records(ledger) == [None, held(5, 1, 2), None]


def test_an_anchor_repeats_the_position_and_claims_no_records(ledger: FakeBroker) -> None:
    anchor(dict(enumerate(last_records(ledger))))
    for lane, found in enumerate(last_records(ledger)):
        assert found is not None
        assert (found.kind, found.batch, found.lane, found.lanes, found.records) == (ANCHOR, 3, lane, 2, 0)
        assert (found.start, found.end, found.run_id) == (END, END, "run-2")


def test_lanes_are_anchored_in_the_order_given(ledger: FakeBroker) -> None:
    seen = last_records(ledger)
    anchor({1: seen[1], 0: seen[0]})
    commits = [about for name, about in ledger.calls if name == "commit_transaction"]
    assert commits == ["orders-1", "orders-0"]


def test_a_lane_is_anchored_only_if_its_last_record_is_the_one_that_was_seen(ledger: FakeBroker) -> None:
    seen = dict(enumerate(last_records(ledger)))
    write(ledger, held(3, 1, 2))
    with pytest.raises(Fenced, match=r"Lane 1 of orders\.ledger.*batch 3"):
        anchor(seen)
    assert last_records(ledger)[1] == held(3, 1, 2)


def test_an_attempt_of_a_former_driver_that_comes_after_the_anchor_is_fenced(ledger: FakeBroker) -> None:
    seen = dict(enumerate(last_records(ledger)))
    attempt = former_attempt(0)
    anchor(seen)
    with pytest.raises(Fenced):
        attempt.commit("commit", {})
    assert [r and r.kind for r in last_records(ledger)] == [ANCHOR, ANCHOR]


def test_a_lane_in_which_a_foreign_transaction_hides_records_is_not_anchored(ledger: FakeBroker) -> None:
    seen = dict(enumerate(last_records(ledger)))
    hidden = ledger.partition(LEDGER, 0)
    hidden.hidden_from = hidden.high
    write(ledger, held(3, 0, 2))
    with pytest.raises(LedgerUndecided):
        anchor(seen)
    assert "commit_transaction" not in ledger.names_of_calls()


def test_an_anchor_that_is_not_delivered_is_aborted_and_not_committed(ledger: FakeBroker) -> None:
    ledger.topics[LEDGER].settings["max.message.bytes"] = "10"
    with pytest.raises(SinkError, match="MSG_SIZE_TOO_LARGE"):
        anchor(dict(enumerate(last_records(ledger))))
    calls = ledger.names_of_calls()
    assert "abort_transaction" in calls
    assert "commit_transaction" not in calls


def test_no_client_of_an_anchored_lane_is_kept(ledger: FakeBroker) -> None:
    anchor(dict(enumerate(last_records(ledger))))
    consumers: list[Any] = [client for client in ledger.clients if hasattr(client, "closed")]
    assert consumers
    assert all(consumer.closed for consumer in consumers)
