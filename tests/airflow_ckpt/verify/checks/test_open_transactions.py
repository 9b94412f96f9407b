"""A transaction that holds readers back is a finding once it is older than a transaction may be."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, TopicPartition

from airflow_ckpt.verify.checks import open_transactions
from airflow_ckpt.verify.checks.open_transactions import check_open
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from tests.support.fake_kafka import FakeBroker
from tests.support.fake_kafka.admin import FakeAdmin
from tests.support.fake_kafka.consumer import FakeConsumer, Message

pytestmark = pytest.mark.unit

TIMEOUT = 60.0


def opened(broker: FakeBroker, seconds_ago: float) -> None:
    """In partition 1, behind three committed records, a transaction of which two records are there so far."""
    partition = broker.topic("sink", 2).partitions[1]
    for _ in range(3):
        partition.write(b"k", b"v", time.time() - 1000)
    partition.hidden_from = partition.high
    for when in (seconds_ago, 0):
        partition.write(b"k", b"open", time.time() - when)


def found(broker: FakeBroker) -> list[Finding]:
    ends = topic_ends(FakeAdmin(broker, {}), "sink")
    assert ends is not None
    return list(check_open({}, "sink", ends, TIMEOUT))


def test_a_transaction_older_than_its_timeout_is_a_finding_with_its_place(broker: FakeBroker) -> None:
    opened(broker, TIMEOUT + 30)
    (finding,) = found(broker)
    assert (finding.kind, finding.violation) == ("open_transaction", True)
    assert (finding.topic, finding.partition, finding.offset) == ("sink", 1, 3)
    assert "find-hanging --topic sink" in finding.helps


def test_a_transaction_that_may_still_end_by_itself_is_none(broker: FakeBroker) -> None:
    """Every running stream has one."""
    opened(broker, TIMEOUT - 30)
    assert found(broker) == []


def test_its_age_is_that_of_its_first_record_and_not_of_older_or_newer_ones(broker: FakeBroker) -> None:
    opened(broker, TIMEOUT + 30)
    assert open_transactions.first_record_time({}, "sink", 1, 3) == pytest.approx(time.time() - 90, abs=5)


def test_a_transaction_that_ends_meanwhile_is_none(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it began, there is no record any more."""
    monkeypatch.setattr(open_transactions, "LOOK_SECONDS", 0.01)
    opened(broker, TIMEOUT + 30)
    log = broker.partition("sink", 1).log
    log[3:] = [None] * len(log[3:])
    assert found(broker) == []


def test_an_error_that_is_read_before_the_record_has_no_time(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a broker closes the connection: its transaction is as old as its first record all the same."""
    read, errors = FakeConsumer.poll, [KafkaError(KafkaError._TRANSPORT)]

    def poll(self: FakeConsumer, seconds: float = -1) -> Message | None:
        if errors:
            return Message(TopicPartition("sink", 1, 3), error=errors.pop())
        return read(self, seconds)

    monkeypatch.setattr(FakeConsumer, "poll", poll)
    opened(broker, TIMEOUT - 30)
    assert found(broker) == []
    assert errors == []


def test_a_topic_without_an_open_transaction_has_no_finding(broker: FakeBroker) -> None:
    opened(broker, TIMEOUT + 30)
    broker.partition("sink", 1).hidden_from = None
    assert found(broker) == []
