"""Kafka's errors as the person who has to act on them reads them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from ckpt_stream.errors import Fenced, SinkError, SinkRejected
from ckpt_stream.kafka_errors import ADVICE, FENCED, PASSING, patiently, sink_error

pytestmark = pytest.mark.unit

#: Every error that librdkafka knows, by its name.
CODES = {KafkaError(code).name(): code for code in range(-200, 140)}


@pytest.mark.parametrize("name", ADVICE)
def test_an_error_that_no_restart_cures_says_what_does(name: str) -> None:
    error = sink_error(KafkaException(KafkaError(CODES[name], "the broker's words")), "write to orders")
    assert type(error) is SinkRejected
    assert error.restart_may_help is False
    assert str(error) == f"Kafka refuses to write to orders: the broker's words ({name}). What helps: {ADVICE[name]}."


@pytest.mark.parametrize("name", FENCED)
def test_a_fenced_producer_is_told_apart(name: str) -> None:
    error = sink_error(KafkaException(KafkaError(CODES[name])), "commit lane 2")
    assert type(error) is Fenced
    assert error.restart_may_help is True
    assert "commit lane 2" in str(error)
    assert name in str(error)


@pytest.mark.parametrize("name", ["_TRANSPORT", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "_MSG_TIMED_OUT"])
def test_any_other_error_may_pass_and_keeps_the_words_of_kafka(name: str) -> None:
    error = sink_error(KafkaException(KafkaError(CODES[name], "3 brokers down")), "read the ledger")
    assert type(error) is SinkError
    assert error.restart_may_help is True
    assert str(error) == f"Kafka could not read the ledger: 3 brokers down ({name})."


def test_an_error_out_of_a_delivery_report_is_no_exception_and_is_understood_all_the_same() -> None:
    error = sink_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "write")
    assert isinstance(error, SinkRejected)
    assert "max.message.bytes" in str(error)


def test_without_words_of_the_broker_librdkafkas_own_stand_there() -> None:
    assert "Broker: Message size too large" in str(sink_error(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "write"))


def test_the_code_of_every_named_error_is_known_to_the_installed_librdkafka() -> None:
    assert set(ADVICE) | set(FENCED) | set(PASSING) <= set(CODES)


def test_no_error_both_passes_by_itself_and_needs_a_person() -> None:
    assert not set(PASSING) & (set(ADVICE) | set(FENCED))


class Broker:
    """Answers with errors first, one second apart, then well."""

    def __init__(self, *errors: str) -> None:
        self.errors, self.asked, self.now = list(errors), 0, 0.0

    def ask(self) -> str:
        self.asked += 1
        self.now += 1
        if self.errors:
            raise KafkaException(KafkaError(CODES[self.errors.pop(0)]))
        return "answer"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    fake = Broker()
    clock = SimpleNamespace(monotonic=lambda: fake.now, sleep=lambda _: None)
    monkeypatch.setattr("ckpt_stream.kafka_errors.time", clock)
    return fake


@pytest.mark.parametrize("name", PASSING)
def test_an_error_that_passes_is_asked_about_again(broker: Broker, name: str) -> None:
    broker.errors = [name, name]
    assert patiently(broker.ask, seconds=30) == "answer"
    assert broker.asked == 3


def test_an_error_that_does_not_pass_is_raised_when_the_time_is_up(broker: Broker) -> None:
    broker.errors = ["NOT_COORDINATOR"] * 100
    with pytest.raises(KafkaException):
        patiently(broker.ask, seconds=10)
    assert broker.asked == 11


@pytest.mark.parametrize("name", ["TOPIC_AUTHORIZATION_FAILED", "_FENCED", "UNKNOWN_TOPIC_OR_PART"])
def test_any_other_error_is_raised_at_once(broker: Broker, name: str) -> None:
    broker.errors = [name]
    with pytest.raises(KafkaException):
        patiently(broker.ask, seconds=30)
    assert broker.asked == 1
