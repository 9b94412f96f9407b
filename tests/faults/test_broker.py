"""Breaks brokers for real, and shows that what Kafka acknowledged is still there, once."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from ckpt_stream.kafka.ledger_creation import ensure_ledger
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from tests.faults.coordinator import coordinating_partition, find_coordinator
from tests.support.breakable_kafka import BreakableKafka
from tests.support.kafka_io import create_topic, produce, read_all
from tests.support.waiting import wait_for

pytestmark = pytest.mark.faults


def values(cluster: BreakableKafka, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    return [record.value for record in read_all(cluster.client_config(), topic, isolation)]


def test_records_that_were_acknowledged_survive_a_killed_broker(breakable_kafka, topics):
    topic = topics("killed")
    expected = [str(n).encode() for n in range(1000)]
    produce(breakable_kafka.client_config(), topic, [(None, value) for value in expected])
    address = breakable_kafka.bootstrap

    breakable_kafka.kill(1)
    (node,) = breakable_kafka.status()["nodes"]
    assert not node["alive"]
    breakable_kafka.start_node(1)

    assert breakable_kafka.bootstrap == address
    assert breakable_kafka.status()["nodes"][0]["pid"] != node["pid"]
    assert values(breakable_kafka, topic) == expected


def test_a_frozen_broker_is_alive_but_silent_and_a_waiting_producer_ends_well_after_the_thaw(breakable_kafka, topics):
    topic = topics("frozen")
    producer = Producer({**breakable_kafka.client_config(), "enable.idempotence": True})
    producer.produce(topic, b"before")
    assert producer.flush(30) == 0

    breakable_kafka.freeze(1)
    (node,) = breakable_kafka.status()["nodes"]
    assert (node["alive"], node["answering"]) == (True, False)
    producer.produce(topic, b"during")
    assert producer.flush(1) == 1

    breakable_kafka.thaw(1)
    assert producer.flush(30) == 0
    assert values(breakable_kafka, topic) == [b"before", b"during"]


def test_of_three_copies_of_a_ledger_two_must_have_what_is_acknowledged(kafka_three):
    topics = Topics(kafka_three.client_config())
    name = create_topic(kafka_three.client_config(), "sink", min_insync_replicas=1)
    sink = wait_for(lambda: topics.find(name), "every broker to know the sink")

    (ledger,) = topics.durability(ensure_ledger(topics, ledger_topic(sink.name), 2, sink))

    assert (ledger.fewest_replicas, ledger.in_sync) == (3, 2)
    topics.close()


@pytest.fixture
def whole_again(kafka_three):
    """The three brokers, all of them up again after the test."""
    yield kafka_three
    kafka_three.start()


def transaction_log_leader(cluster: BreakableKafka, transactional_id: str) -> int:
    """The broker that leads the partition of the transaction log in which this id is kept."""
    log = AdminClient(cluster.client_config()).list_topics("__transaction_state", timeout=10)
    partitions = log.topics["__transaction_state"].partitions
    return int(partitions[coordinating_partition(transactional_id, len(partitions))].leader)


def coordinator_but_not(cluster: BreakableKafka, transactional_id: str, former: int | None = None) -> int:
    """What the brokers themselves answer, as soon as it is another one than the former."""

    def answer() -> int | None:
        said = (find_coordinator(address, transactional_id) for address in cluster.bootstrap.split(","))
        return next((node for node in said if node not in (None, former)), None)

    return wait_for(answer, f"a coordinator of {transactional_id} other than {former}", 60)


@pytest.mark.parametrize(
    ("ending", "is_visible"),
    [("commit_transaction", True), pytest.param("abort_transaction", False, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_a_transaction_completes_although_its_coordinator_was_killed(whole_again, ending, is_visible):
    cluster = whole_again
    topic = create_topic(cluster.client_config(), "coordinator", partitions=3)
    transactional_id = f"coordinator-{uuid.uuid4().hex}"
    expected = sorted(str(n).encode() for n in range(100))
    producer = Producer({**cluster.client_config(), "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in expected:
        producer.produce(topic, value, value)
    assert producer.flush(60) == 0
    assert sorted(values(cluster, topic, "read_uncommitted")) == expected
    assert values(cluster, topic) == []

    coordinator = coordinator_but_not(cluster, transactional_id)
    assert coordinator == transaction_log_leader(cluster, transactional_id)
    cluster.kill(coordinator)
    getattr(producer, ending)(60)

    successor = coordinator_but_not(cluster, transactional_id, former=coordinator)
    assert successor == transaction_log_leader(cluster, transactional_id) != coordinator
    assert [node["alive"] for node in cluster.status()["nodes"]].count(False) == 1
    assert sorted(values(cluster, topic)) == (expected if is_visible else [])
