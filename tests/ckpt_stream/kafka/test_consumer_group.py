"""What a consumer group has committed, asked by a consumer that never joins the group."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ckpt_stream.kafka.consumer_group import committed_offsets
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker, kafka_error
from tests.support.fake_kafka.consumer import FakeConsumer, Message

pytestmark = pytest.mark.unit

WANTED = {"orders": [0, 1]}


def ask() -> Any:
    return committed_offsets({"bootstrap.servers": "broker:9092"}, "reports", WANTED, seconds=10)


def test_a_partition_without_a_commit_is_left_out(broker: FakeBroker) -> None:
    broker.groups["reports"] = {("orders", 1): 7, ("others", 0): 3}
    assert ask() == {"orders": {"1": 7}}


def test_a_group_that_stands_at_the_first_offset_of_all_has_committed_it(broker: FakeBroker) -> None:
    broker.groups["reports"] = {("orders", 0): 0}
    assert ask() == {"orders": {"0": 0}}


def test_a_group_that_has_committed_nothing_is_empty(broker: FakeBroker) -> None:
    assert ask() == {}


def test_a_question_about_no_partition_is_not_asked(broker: FakeBroker) -> None:
    assert committed_offsets({}, "reports", {"orders": []}) == {}
    assert broker.clients == []


def test_the_group_of_the_connection_is_not_the_one_that_is_asked_about(broker: FakeBroker) -> None:
    committed_offsets({"group.id": "mine", "auto.offset.reset": "latest"}, "reports", WANTED)
    (consumer,) = broker.clients
    assert consumer.settings == {"group.id": "reports", "enable.auto.commit": False}
    assert consumer.closed


def test_a_coordinator_that_moves_is_asked_again(broker: FakeBroker) -> None:
    broker.groups["reports"] = {("orders", 0): 7}
    broker.fail("committed", kafka_error("NOT_COORDINATOR"), kafka_error("_TIMED_OUT"))
    assert ask() == {"orders": {"0": 7}}


def test_a_coordinator_that_never_answers_is_an_error_when_the_time_is_up(broker: FakeBroker, clock: FakeClock) -> None:
    def time_out() -> None:
        clock.now += 2
        broker.fail("committed", time_out)
        raise KafkaException(kafka_error("_TIMED_OUT"))

    broker.fail("committed", time_out)
    with pytest.raises(KafkaException):
        ask()
    assert 10 <= clock.now <= 12


def test_the_reason_of_a_refusal_is_raised_and_not_the_timeout_that_hides_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Message(None, error=kafka_error("GROUP_AUTHORIZATION_FAILED"))
    events = [Message(None, error=kafka_error("_TRANSPORT")), refusal]
    monkeypatch.setattr(FakeConsumer, "poll", lambda self, _: events.pop(0) if events else None)
    broker.fail("committed", kafka_error("_TIMED_OUT"))
    with pytest.raises(KafkaException) as refused:
        ask()
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("error", "raises"), [("UNKNOWN_TOPIC_OR_PART", False), ("TOPIC_AUTHORIZATION_FAILED", True)])
def test_a_partition_that_is_gone_is_left_out_and_any_other_error_of_one_is_raised(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, error: str, raises: bool
) -> None:
    class Partition:
        topic, partition, offset = "orders", 0, -1001

        def __init__(self) -> None:
            self.error = kafka_error(error)

    monkeypatch.setattr(FakeConsumer, "committed", lambda self, wanted, timeout: [Partition()])
    if not raises:
        assert ask() == {}
        return
    with pytest.raises(KafkaException):
        ask()
