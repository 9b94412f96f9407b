"""Making the ledger topic, and widening it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckpt_stream.errors import SinkError, SinkRejected, StreamError
from ckpt_stream.kafka.admin_client import ASK_SECONDS
from ckpt_stream.kafka.ledger_creation import ensure_ledger
from ckpt_stream.kafka.topics import Topic, Topics
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit


@pytest.fixture
def topics(broker: FakeBroker) -> Topics:
    broker.topic("orders", min_insync_replicas="2")
    return Topics({})


def ensure(topics: Topics, lanes: int) -> Topic:
    return ensure_ledger(topics, "orders.ledger", lanes, topics.get("orders", "sink"))


def test_a_new_ledger_has_a_partition_per_lane_is_compacted_and_as_safe_as_the_sink(
    broker: FakeBroker, topics: Topics
) -> None:
    ledger = ensure(topics, 2)
    assert (ledger.partitions, ledger.replicas[0]) == (2, (1, 2, 3))
    settings = broker.topics["orders.ledger"].settings
    assert (settings["cleanup.policy"], settings["min.insync.replicas"]) == ("compact", "2")


def test_more_lanes_add_partitions_and_fewer_take_none_away(broker: FakeBroker, topics: Topics) -> None:
    first = ensure(topics, 2)
    assert ensure(topics, 3).partitions == 3
    same = ensure(topics, 1)
    assert (same.partitions, same.id) == (3, first.id)
    assert broker.names_of_calls().count("create_topics") == 1


def test_a_widened_ledger_is_used_when_kafka_shows_all_of_its_lanes(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not know the new partitions yet describes the topic as it was."""
    ensure(topics, 1)
    find, answers = topics.find, iter([1, 1, 1, 2])

    def find_late(name: str, **settings: bool) -> Topic | None:
        found = find(name, **settings)
        return found if found is None or name != "orders.ledger" else replace(found, partitions=next(answers))

    monkeypatch.setattr(topics, "find", find_late)
    assert ensure(topics, 2).partitions == 2
    assert list(answers) == []


def test_a_ledger_that_another_driver_made_meanwhile_is_taken(broker: FakeBroker, topics: Topics) -> None:
    broker.fail("create_topics", lambda: broker.topic("orders.ledger", 2))
    assert ensure(topics, 2).partitions == 2


def test_a_ledger_that_kafka_does_not_show_in_time_is_an_error(
    broker: FakeBroker, topics: Topics, clock: FakeClock
) -> None:
    sink = topics.get("orders", "sink")
    broker.fail("describe_topics", *[kafka_error("UNKNOWN_TOPIC_OR_PART")] * 10_000)
    with pytest.raises(SinkError, match=r"orders\.ledger"):
        ensure_ledger(topics, "orders.ledger", 2, sink)
    assert ASK_SECONDS <= clock.now < ASK_SECONDS + 1


@pytest.mark.parametrize(
    ("name", "kind", "helps"),
    [
        ("INVALID_REPLICATION_FACTOR", SinkError, "brokers are back"),
        ("POLICY_VIOLATION", SinkRejected, "--config cleanup.policy=compact"),
        ("INVALID_CONFIG", SinkRejected, "kafka-topics.sh"),
        ("TOPIC_AUTHORIZATION_FAILED", SinkRejected, "grant"),
    ],
)
def test_a_ledger_that_cannot_be_made_says_what_to_do(
    broker: FakeBroker, topics: Topics, name: str, kind: type[StreamError], helps: str
) -> None:
    broker.fail("create_topics", kafka_error(name))
    with pytest.raises(SinkError, match=helps) as refused:
        ensure(topics, 2)
    assert type(refused.value) is kind
