"""How much input waits, and since when."""

from __future__ import annotations

import pytest

from airflow_ckpt.kafka.group_offsets import group_offsets
from airflow_ckpt.kafka.lag import READ_SECONDS, first_unread, source_ends, topic_names, waiting_since
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker, kafka_error
from tests.support.fake_kafka.consumer import FakeConsumer

pytestmark = pytest.mark.unit


def test_each_source_topic_has_its_ends_and_a_missing_one_none(broker: FakeBroker) -> None:
    broker.topic("in_1")
    broker.partition("in_1").write(None, b"v")
    ends = source_ends(admin_client({}), ["in_1", "in_2"], None)
    assert ends == {"in_1": TopicEnds({0: 0}, {0: 1}, {0: 1}), "in_2": None}


def test_a_kafka_that_does_not_list_its_topics_is_unreachable(broker: FakeBroker) -> None:
    broker.fail("list_topics", kafka_error("_TRANSPORT"))
    with pytest.raises(KafkaUnreachable, match="_TRANSPORT"):
        topic_names(admin_client({}), (), "in_.*")


def test_the_next_offset_is_the_committed_one_unless_it_was_deleted(broker: FakeBroker) -> None:
    ends = {"in": TopicEnds({0: 0, 1: 30, 2: 0, 3: 0}, dict.fromkeys(range(4), 50), dict.fromkeys(range(4), 60))}
    committed = {"in": {"0": 40, "1": 10, "2": 50}}
    assert first_unread(committed, ends) == {("in", 0): 40, ("in", 1): 30}
    assert first_unread(committed, {"in": None}) == {}


def test_the_age_of_what_waits_is_that_of_its_first_record(broker: FakeBroker) -> None:
    broker.topic("in", 2)
    for time in (100.0, 200.0, 300.0):
        broker.partition("in", 0).write(None, b"v", time)
    broker.partition("in", 1).write(None, b"v", 50.0)
    assert waiting_since({}, {("in", 0): 1, ("in", 1): 0}) == {("in", 0): 200.0, ("in", 1): 50.0}


def test_a_record_that_is_not_read_in_time_is_left_out(
    broker: FakeBroker, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topic("in", 2)
    broker.partition("in", 0).write(None, b"v", 100.0)
    poll = FakeConsumer.poll

    def slow(self: FakeConsumer, seconds: float) -> object:
        clock.now += 1
        return poll(self, seconds)

    monkeypatch.setattr(FakeConsumer, "poll", slow)
    assert waiting_since({}, {("in", 0): 0, ("in", 1): 0}) == {("in", 0): 100.0}
    assert READ_SECONDS <= clock.now <= READ_SECONDS + 1
    assert broker.clients[-1].closed


def test_nothing_that_waits_needs_no_client(broker: FakeBroker) -> None:
    assert waiting_since({}, {}) == {}
    assert broker.clients == []


def test_the_offsets_of_a_group(broker: FakeBroker) -> None:
    broker.groups["reports"] = {("in", 0): 7}
    assert group_offsets({}, "reports", {"in": [0, 1]}) == {"in": {"0": 7}}


def test_a_group_that_this_user_may_not_see_names_the_group(broker: FakeBroker) -> None:
    broker.fail("committed", kafka_error("GROUP_AUTHORIZATION_FAILED"))
    with pytest.raises(KafkaUnreachable, match="reports"):
        group_offsets({}, "reports", {"in": [0]})
