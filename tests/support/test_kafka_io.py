"""The helper on which every exactly-once test rests must itself not see too little or too much."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from tests.support.kafka_io import produce, read_all

pytestmark = pytest.mark.integration


@pytest.fixture
def transaction(kafka):
    """A producer with an open transaction."""
    producer = Producer({**kafka.client_config(), "transactional.id": f"io-{uuid.uuid4().hex}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def test_all_partitions_are_read_in_order(kafka, topics):
    topic = topics("io", partitions=3)
    produce(kafka.client_config(), topic, [(str(n), str(n)) for n in range(100)])
    records = read_all(kafka.client_config(), topic)
    assert sorted(int(record.value) for record in records) == list(range(100))
    assert {record.partition for record in records} == {0, 1, 2}
    assert [record[:2] for record in records] == sorted(record[:2] for record in records)


def test_an_empty_topic_has_no_records(kafka, topics):
    assert read_all(kafka.client_config(), topics("io")) == []


def test_an_open_transaction_hides_its_records_and_all_that_follow(kafka, topics, transaction):
    topic = topics("io")
    produce(kafka.client_config(), topic, [("a", "before")])
    transaction.produce(topic, "inside")
    transaction.flush(30)
    produce(kafka.client_config(), topic, [("a", "after")])
    committed, written = (
        [record.value for record in read_all(kafka.client_config(), topic, isolation)]
        for isolation in ("read_committed", "read_uncommitted")
    )
    assert committed == [b"before"]
    assert written == [b"before", b"inside", b"after"]


@pytest.mark.parametrize(("ending", "visible"), [("commit_transaction", [b"inside"]), ("abort_transaction", [])])
def test_reading_ends_behind_the_marker_of_the_last_transaction(kafka, topics, transaction, ending, visible):
    topic = topics("io")
    transaction.produce(topic, "inside")
    transaction.flush(30)
    getattr(transaction, ending)(30)
    assert [record.value for record in read_all(kafka.client_config(), topic)] == visible
