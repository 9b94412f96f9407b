"""Kafka's errors, and what the user is advised to do."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from ckpt_stream.errors import Fenced, SinkError, SinkRejected
from ckpt_stream.kafka.client_errors import ADVICE, FENCED, TRANSIENT, to_sink_error
from tests.support.fake_kafka.errors import CODES

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ADVICE)
def test_an_error_that_a_restart_does_not_cure_names_what_cures_it(name: str) -> None:
    error = to_sink_error(KafkaException(KafkaError(CODES[name], "the broker's words")), "write to orders")
    assert type(error) is SinkRejected
    assert error.restart_may_help is False
    for part in ("write to orders", "the broker's words", name, ADVICE[name]):
        assert part in str(error)


@pytest.mark.parametrize("name", ["_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_a_fenced_producer_has_an_error_of_its_own(name: str) -> None:
    error = to_sink_error(KafkaException(KafkaError(CODES[name])), "commit lane 2")
    assert type(error) is Fenced
    assert error.restart_may_help is True
    assert "commit lane 2" in str(error)
    assert name in str(error)


@pytest.mark.parametrize("name", ["_TRANSPORT", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT"])
def test_after_any_other_error_a_restart_may_help_and_the_message_of_kafka_is_kept(name: str) -> None:
    error = to_sink_error(KafkaException(KafkaError(CODES[name], "3 brokers down")), "read the ledger")
    assert type(error) is SinkError
    assert error.restart_may_help is True
    for part in ("read the ledger", "3 brokers down", name):
        assert part in str(error)


def test_an_error_from_a_delivery_report_is_understood_although_it_is_no_exception() -> None:
    error = to_sink_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "write")
    assert isinstance(error, SinkRejected)
    assert "max.message.bytes" in str(error)


def test_without_a_message_of_the_broker_that_of_librdkafka_is_kept() -> None:
    assert "Broker: Message size too large" in str(to_sink_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "write"))


def test_the_code_of_every_named_error_is_known_to_the_installed_librdkafka() -> None:
    assert set(ADVICE) | set(FENCED) | set(TRANSIENT) <= set(CODES)


def test_no_error_both_ends_by_itself_and_needs_a_user() -> None:
    assert not set(TRANSIENT) & (set(ADVICE) | set(FENCED))
