"""Asking Kafka again while the answer is an error that ends by itself."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from ckpt_stream.kafka.admin_client import retry_transient
from ckpt_stream.kafka.client_errors import TRANSIENT
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import kafka_error

pytestmark = pytest.mark.unit


class Broker:
    """Answers with errors first, one second apart, then well."""

    def __init__(self, clock: FakeClock, *errors: str) -> None:
        self.clock, self.errors, self.asked = clock, list(errors), 0

    def ask(self) -> str:
        self.asked += 1
        self.clock.now += 1
        if self.errors:
            raise KafkaException(kafka_error(self.errors.pop(0)))
        return "answer"


@pytest.mark.parametrize("name", TRANSIENT)
def test_an_error_that_ends_by_itself_is_asked_about_again(clock: FakeClock, name: str) -> None:
    broker = Broker(clock, name, name)
    assert retry_transient(broker.ask, seconds=30) == "answer"
    assert broker.asked == 3


def test_an_error_that_does_not_end_is_raised_when_the_time_is_up(clock: FakeClock) -> None:
    broker = Broker(clock, *["NOT_COORDINATOR"] * 100)
    with pytest.raises(KafkaException) as refused:
        retry_transient(broker.ask, seconds=10)
    assert refused.value.args[0].code() == KafkaError.NOT_COORDINATOR
    assert 10 <= clock.now < 12


@pytest.mark.parametrize("name", ["TOPIC_AUTHORIZATION_FAILED", "_FENCED", "UNKNOWN_TOPIC_OR_PART"])
def test_any_other_error_is_raised_at_once(clock: FakeClock, name: str) -> None:
    broker = Broker(clock, name)
    with pytest.raises(KafkaException):
        retry_transient(broker.ask, seconds=30)
    assert broker.asked == 1


def test_a_caller_can_name_further_errors_that_end_by_themselves(clock: FakeClock) -> None:
    broker = Broker(clock, "UNKNOWN_TOPIC_OR_PART")
    assert retry_transient(broker.ask, also=["UNKNOWN_TOPIC_OR_PART"]) == "answer"
