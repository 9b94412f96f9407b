"""Where topics begin and end, asked through an admin client."""

from __future__ import annotations

from typing import Any

import pytest

from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import list_offsets, partitions_of, topic_ends
from ckpt_stream.kafka.topic_settings import broker_settings, topic_settings
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit


@pytest.fixture
def admin(broker: FakeBroker) -> Any:
    return admin_client({"bootstrap.servers": "broker:9092"})


def test_a_topic_ends_differently_for_readers_of_committed_records_and_of_all(broker: FakeBroker, admin: Any) -> None:
    broker.topic("orders", 2)
    log = broker.partition("orders", 1)
    for _ in range(5):
        log.write(None, b"v")
    log.low, log.hidden_from = 2, 4
    ends = topic_ends(admin, "orders")
    assert ends == TopicEnds({0: 0, 1: 2}, {0: 0, 1: 4}, {0: 0, 1: 5})
    assert ends.held_back == [1]


def test_a_transaction_that_commits_between_two_questions_does_not_look_open(broker: FakeBroker, admin: Any) -> None:
    """The stable end is asked for first."""
    broker.topic("orders")
    topic_ends(admin, "orders")
    assert [about for name, about in broker.calls if name == "list_offsets"] == ["stable", "high", "earliest"]


def test_a_missing_topic_has_no_ends(broker: FakeBroker, admin: Any) -> None:
    assert topic_ends(admin, "orders") is None
    assert partitions_of(admin, "orders") is None


def test_a_question_about_no_partition_is_not_asked(broker: FakeBroker, admin: Any) -> None:
    assert list_offsets(admin, {"orders": []}, "high") == {}
    assert broker.calls == []


@pytest.mark.parametrize("call", ["list_topics", "list_offsets"])
def test_an_error_that_ends_by_itself_is_asked_about_again(broker: FakeBroker, admin: Any, call: str) -> None:
    broker.topic("orders")
    broker.fail(call, kafka_error("NOT_LEADER_FOR_PARTITION"))
    assert topic_ends(admin, "orders") is not None


@pytest.mark.parametrize("call", ["list_topics", "list_offsets"])
def test_any_other_error_names_the_topic_and_what_kafka_said(broker: FakeBroker, admin: Any, call: str) -> None:
    broker.topic("orders")
    broker.fail(call, kafka_error("TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(KafkaUnreachable, match=r"orders.*TOPIC_AUTHORIZATION_FAILED") as unreachable:
        topic_ends(admin, "orders")
    assert unreachable.value.restart_may_help


def test_settings_are_empty_when_this_user_may_not_see_them(broker: FakeBroker, admin: Any) -> None:
    broker.topic("orders", retention_ms="1")
    broker.broker_settings = {"transaction.max.timeout.ms": "5"}
    assert topic_settings(admin, "orders") == {"retention.ms": "1"}
    assert broker_settings(admin) == {"transaction.max.timeout.ms": "5"}
    broker.fail(
        "describe_configs",
        kafka_error("TOPIC_AUTHORIZATION_FAILED"),
        kafka_error("CLUSTER_AUTHORIZATION_FAILED"),
        kafka_error("_TIMED_OUT"),
    )
    assert (topic_settings(admin, "orders"), broker_settings(admin), topic_settings(admin, "orders")) == ({}, {}, {})
