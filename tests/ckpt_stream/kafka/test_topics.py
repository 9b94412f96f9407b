"""What the driver asks Kafka about topics."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ckpt_stream.errors import SinkError, SinkRejected
from ckpt_stream.kafka import connection_errors
from ckpt_stream.kafka.topics import GONE_SECONDS, MARKER_SECONDS, Topic, Topics
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit


@pytest.fixture
def topics(broker: FakeBroker) -> Topics:
    return Topics({"bootstrap.servers": "broker:9092"})


def test_a_topic_is_described_with_what_makes_it_this_topic_and_keeps_its_records(
    broker: FakeBroker, topics: Topics
) -> None:
    made = broker.topic("orders", 2)
    made.in_sync = (1, 2)
    assert topics.find("orders") == Topic("orders", made.id, 2, ((1, 2, 3), (1, 2, 3)), frozenset({0, 1}))


def test_a_topic_whose_replicas_are_all_in_sync_is_complete(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("orders", 2)
    found = topics.find("orders")
    assert found is not None
    assert found.incomplete == frozenset()


def test_a_topic_that_was_made_again_has_another_id(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("orders")
    before = topics.get("orders", "sink")
    topics.delete("orders")
    assert topics.find("orders") is None
    broker.topic("orders")
    assert topics.get("orders", "sink").id != before.id


def test_a_topic_that_must_exist_is_refused_by_name_and_role(topics: Topics) -> None:
    with pytest.raises(SinkRejected, match=r"dead-letter.*'orders\.dead'"):
        topics.get("orders.dead", "dead-letter")


def test_a_topic_that_must_exist_and_that_a_broker_does_not_know_yet_is_asked_for_again(
    broker: FakeBroker, topics: Topics
) -> None:
    broker.topic("orders")
    broker.fail("describe_topics", *[kafka_error("UNKNOWN_TOPIC_OR_PART")] * 3)
    assert topics.get("orders", "sink").name == "orders"
    broker.fail("describe_topics", kafka_error("UNKNOWN_TOPIC_OR_PART"))
    assert topics.find("orders") is None, "a topic that need not exist is asked for once"


def test_a_broker_that_moves_a_leader_is_asked_again(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("orders")
    broker.fail("describe_topics", kafka_error("LEADER_NOT_AVAILABLE"), kafka_error("_TRANSPORT"))
    assert topics.find("orders") is not None
    assert broker.names_of_calls() == ["describe_topics"] * 3


def test_a_topic_that_this_user_may_not_describe_is_a_refusal_and_not_a_missing_topic(
    broker: FakeBroker, topics: Topics
) -> None:
    broker.topic("orders")
    broker.fail("describe_topics", kafka_error("TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(SinkRejected):
        topics.find("orders")


def test_a_broker_that_does_not_answer_in_time_is_an_error_and_not_a_missing_topic(
    broker: FakeBroker, topics: Topics
) -> None:
    broker.topic("orders")
    broker.fail("describe_topics", *[kafka_error("_TIMED_OUT")] * 1000)
    with pytest.raises(SinkError) as unknown:
        topics.find("orders")
    assert unknown.value.restart_may_help


def test_a_refused_login_is_reported_at_once_although_librdkafka_goes_on_trying(
    broker: FakeBroker, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    (admin,) = broker.clients
    monkeypatch.setattr(
        admin, "poll", lambda _: admin.settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    )
    broker.fail("describe_topics", TimeoutError(), TimeoutError())
    with pytest.raises(SinkRejected, match="wrong password"):
        topics.find("orders")
    assert broker.names_of_calls() == ["describe_topics"]


@pytest.mark.parametrize(
    ("answer", "rejected", "named"),
    [("_TIMED_OUT", False, "certificate has expired"), ("TOPIC_AUTHORIZATION_FAILED", True, "TOPIC_AUTHORIZATION")],
)
def test_an_error_of_the_connection_explains_a_timeout_and_no_other_answer(
    broker: FakeBroker, topics: Topics, monkeypatch: pytest.MonkeyPatch, answer: str, rejected: bool, named: str
) -> None:
    (admin,) = broker.clients
    expired = KafkaError(KafkaError._SSL, "certificate has expired")
    monkeypatch.setattr(admin, "poll", lambda _: admin.settings["error_cb"](expired))
    broker.fail("describe_topics", *[TimeoutError(), kafka_error(answer)] * 1000)
    with pytest.raises(SinkError, match=named) as found:
        topics.find("orders")
    assert isinstance(found.value, SinkRejected) is rejected


def test_an_error_from_before_the_question_does_not_explain_its_timeout(broker: FakeBroker, topics: Topics) -> None:
    (admin,) = broker.clients
    admin.settings["error_cb"](KafkaError(KafkaError._SSL, "certificate has expired"))
    broker.fail("describe_topics", *[kafka_error("_TIMED_OUT")] * 1000)
    with pytest.raises(SinkError, match="_TIMED_OUT"):
        topics.find("orders")


def test_the_reason_for_a_timeout_is_the_newest_error_of_the_connection() -> None:
    errors = connection_errors.ConnectionErrors()
    keep = errors.callback()
    keep(KafkaError(KafkaError._SSL, "certificate has expired"))
    keep(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert errors.newest is not None
    assert errors.newest.code() == KafkaError._SSL


# The sink before each batch


def test_the_sink_and_all_ends_are_asked_for_at_once(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("orders", 2)
    broker.topic("orders.dead")
    topics.find("orders")
    topics.find("orders.dead")
    broker.partition("orders", 1).write(None, b"v")
    broker.calls.clear()
    found, ends = topics.sink_and_ends("orders", "orders.dead")
    assert found is not None
    assert (found.partitions, ends) == (2, {"orders": {"0": 0, "1": 1}, "orders.dead": {"0": 0}})
    assert sorted(broker.names_of_calls()) == ["describe_topics", "list_offsets"]


def test_the_end_of_the_sink_is_behind_an_open_transaction_too(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("orders")
    topics.find("orders")
    broker.partition("orders").write(None, b"v")
    broker.partition("orders").hidden_from = 0
    assert topics.sink_and_ends("orders")[1] == {"orders": {"0": 1}}


def test_a_partition_that_was_added_to_the_sink_has_an_end_too(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("orders", 1)
    topics.find("orders")
    broker.topic("orders", 3)
    found, ends = topics.sink_and_ends("orders")
    assert found is not None
    assert (found.partitions, sorted(ends["orders"])) == (3, ["0", "1", "2"])


def test_a_sink_that_was_deleted_is_none(broker: FakeBroker, topics: Topics, clock: FakeClock) -> None:
    broker.topic("orders")
    topics.find("orders")
    del broker.topics["orders"]
    assert topics.sink_and_ends("orders") == (None, {})
    assert GONE_SECONDS <= clock.now < GONE_SECONDS + 1


@pytest.mark.parametrize("offsets_answer", [True, False])
def test_a_broker_that_does_not_know_the_sink_for_a_moment_is_asked_again(
    offsets_answer: bool, broker: FakeBroker, topics: Topics
) -> None:
    """What follows from a sink that is gone is final."""
    broker.topic("orders")
    topics.find("orders")
    broker.fail("describe_topics", kafka_error("UNKNOWN_TOPIC_OR_PART"))
    if not offsets_answer:
        broker.fail("list_offsets", kafka_error("LEADER_NOT_AVAILABLE"))
    found, ends = topics.sink_and_ends("orders")
    assert found is not None
    assert ends == {"orders": {"0": 0}}


# What readers of committed records see


def test_a_topic_is_readable_once_the_stable_end_has_reached_the_end_of_the_moment(
    broker: FakeBroker, topics: Topics, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topic("orders.ledger")
    topics.find("orders.ledger")
    log = broker.partition("orders.ledger")
    log.write(b"k", b"1")
    log.hidden_from = 0

    def the_marker_arrives_and_the_stream_goes_on(seconds: float) -> None:
        clock.now += seconds
        log.write(b"k", b"2")
        log.hidden_from = 1

    monkeypatch.setattr(clock, "sleep", the_marker_arrives_and_the_stream_goes_on)
    assert topics.wait_until_readable("orders.ledger")
    assert clock.now < 1


def test_a_transaction_that_stays_open_keeps_a_topic_from_being_readable(
    broker: FakeBroker, topics: Topics, clock: FakeClock
) -> None:
    broker.topic("orders.ledger")
    topics.find("orders.ledger")
    broker.partition("orders.ledger").write(b"k", b"1")
    broker.partition("orders.ledger").hidden_from = 0
    assert not topics.wait_until_readable("orders.ledger")
    assert MARKER_SECONDS <= clock.now < MARKER_SECONDS + 1


# Settings


def test_the_largest_record_is_the_topics_setting_and_unknown_without_the_right_to_see_it(
    broker: FakeBroker, topics: Topics
) -> None:
    broker.topic("orders", max_message_bytes="2000")
    assert topics.max_message_bytes("orders") == 2000
    broker.fail("describe_configs", kafka_error("TOPIC_AUTHORIZATION_FAILED"))
    assert topics.max_message_bytes("orders") is None


def durability_after(broker: FakeBroker, topics: Topics, *errors: KafkaError) -> list[dict[str, str] | None]:
    broker.topic("orders.ledger", cleanup_policy="compact")
    broker.topic("orders", min_insync_replicas="2")
    found = [topics.get(name, "") for name in ("orders.ledger", "orders")]
    broker.fail("describe_configs", *errors)
    return [each.settings and dict(each.settings) for each in topics.durability(*found)]


def test_settings_that_this_user_may_not_see_are_unknown(broker: FakeBroker, topics: Topics) -> None:
    found = durability_after(broker, topics, kafka_error("TOPIC_AUTHORIZATION_FAILED"))
    assert found == [None, {"min.insync.replicas": "2"}]


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(broker: FakeBroker, topics: Topics) -> None:
    found = durability_after(broker, topics, kafka_error("UNKNOWN_TOPIC_OR_PART"))
    assert found == [{"cleanup.policy": "compact"}, {"min.insync.replicas": "2"}]


def test_any_other_error_is_not_taken_for_a_missing_right(broker: FakeBroker, topics: Topics) -> None:
    with pytest.raises(SinkError, match=r"orders\.ledger"):
        durability_after(broker, topics, kafka_error("INVALID_CONFIG"))


# The source


def test_the_first_offset_of_each_partition_of_the_source(broker: FakeBroker, topics: Topics) -> None:
    broker.topic("in_1", 2)
    broker.topic("in_2")
    broker.partition("in_1", 1).low = 7
    assert topics.first_offsets({"in_1": [0, 1], "in_2": [0]}) == {"in_1": {0: 0, 1: 7}, "in_2": {0: 0}}
    assert topics.first_offsets({}) == {}


@pytest.mark.parametrize(("names", "pattern"), [(("in_1", "in_9"), None), ((), "nothing_.*")])
def test_a_source_that_is_not_there_is_refused(
    broker: FakeBroker, topics: Topics, names: tuple[str, ...], pattern: str | None
) -> None:
    broker.topic("in_1")
    with pytest.raises(SinkRejected, match=(pattern and "nothing") or "in_9"):
        topics.source_partitions(names, pattern)
