"""What the driver asks Kafka about topics, where Kafka does not tell."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ckpt_stream.errors import SinkError, SinkRejected, StreamError
from ckpt_stream.start_of_run import _refuse_unsafe
from ckpt_stream.topics import Topic, Topics

pytestmark = pytest.mark.unit

SINK = Topic("orders", "id", 1, ((1, 2, 3),))
LEDGER = Topic("orders.ledger", "id", 1, ((1, 2, 3),))


class Answer:
    def __init__(self, settings: dict[str, str] | int) -> None:
        self.settings = settings

    def result(self) -> dict[str, Any]:
        if self.settings == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.settings = {}  # by the time it is asked again
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        if isinstance(self.settings, int):
            raise KafkaException(KafkaError(self.settings))
        return {name: SimpleNamespace(value=value) for name, value in self.settings.items()}


def asked(**answers: dict[str, str] | int) -> Topics:
    """Topics whose settings are known, or asking for which ends in an error."""

    class Admin:
        def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Answer]:
            return {resource: known[resource.name.replace(".", "_")] for resource in resources}

    known = {name: Answer(answer) for name, answer in answers.items()}
    topics = Topics({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    topics._admin = Admin()
    return topics


def test_settings_that_this_user_may_not_see_are_unknown_and_the_driver_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topics = asked(orders_ledger=KafkaError.TOPIC_AUTHORIZATION_FAILED, orders={"min.insync.replicas": "2"})
    ledger, sink = topics.durability(LEDGER, SINK)
    assert (ledger.settings, sink.in_sync) == (None, 2)
    with caplog.at_level(logging.WARNING):
        _refuse_unsafe(ledger, sink)
    assert "orders.ledger" in caplog.text
    assert "kafka-acls.sh" in caplog.text
    assert "DescribeConfigs" in caplog.text


def test_nothing_is_said_where_everything_is_known(caplog: pytest.LogCaptureFixture) -> None:
    good = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    _refuse_unsafe(*asked(orders_ledger=good, orders=good).durability(LEDGER, SINK))
    assert caplog.text == ""


def test_a_broker_that_has_not_heard_of_a_new_topic_yet_is_asked_again() -> None:
    ledger, _ = asked(orders_ledger=KafkaError.UNKNOWN_TOPIC_OR_PART, orders={}).durability(LEDGER, SINK)
    assert ledger.settings == {}


def test_any_other_answer_is_an_error_and_not_taken_for_a_missing_right() -> None:
    with pytest.raises(SinkError, match=r"orders\.ledger"):
        asked(orders_ledger=KafkaError.INVALID_CONFIG, orders={}).durability(LEDGER, SINK)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (KafkaError.INVALID_REPLICATION_FACTOR, SinkError, "start again when the brokers are back"),
        (KafkaError.POLICY_VIOLATION, SinkRejected, "--config cleanup.policy=compact"),
        (KafkaError.INVALID_CONFIG, SinkRejected, "kafka-topics.sh"),
    ],
)
def test_a_ledger_that_cannot_be_made_says_what_to_do(code: int, kind: type[StreamError], words: str) -> None:
    error = asked()._cannot_make("orders.ledger", 2, KafkaException(KafkaError(code)))
    assert type(error) is kind
    assert words in str(error)
