"""Reading all lanes of a ledger again and again, as a verification of a running stream does."""

from __future__ import annotations

import pytest

from ckpt_stream.kafka.ledger_lanes import LedgerLanes
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

TOPIC = "orders.ledger"


def write(broker: FakeBroker, *records: LedgerRecord) -> None:
    for record in records:
        broker.partition(TOPIC, record.lane).write(record.key, record.to_json())


def test_a_second_read_of_a_ledger_gives_all_and_fetches_only_what_is_new(broker: FakeBroker) -> None:
    broker.topic(TOPIC, 2)
    write(broker, *(held(batch, lane, 2) for batch in range(3) for lane in range(2)))
    lanes = LedgerLanes({}, TOPIC)
    assert [[r.batch for r in lane] for lane in lanes.read([0, 1])] == [[0, 1, 2], [0, 1, 2]]
    write(broker, held(3, 1, 2))
    assert [[r.batch for r in lane] for lane in lanes.read([0, 1])] == [[0, 1, 2], [0, 1, 2, 3]]
    assert [client.delivered for client in broker.clients] == [6, 1]


def test_the_client_of_each_read_is_closed(broker: FakeBroker) -> None:
    broker.topic(TOPIC)
    LedgerLanes({}, TOPIC).read([0])
    assert [client.closed for client in broker.clients] == [True]


def test_a_lane_that_was_added_is_read_from_its_beginning(broker: FakeBroker) -> None:
    broker.topic(TOPIC, 2)
    lanes = LedgerLanes({}, TOPIC)
    write(broker, held(0), held(1, 1, 2))
    assert [len(lane) for lane in lanes.read([0])] == [1]
    assert [[r.batch for r in lane] for lane in lanes.read([0, 1])] == [[0], [1]]
