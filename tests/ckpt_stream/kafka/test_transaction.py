"""One transaction of a lane, from the fence to its end, against a Kafka in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from ckpt_stream.errors import CommitUnknown, Fenced, SinkError, SinkRejected
from ckpt_stream.kafka.transaction import INIT_SECONDS, QUEUE_KBYTES, Transaction
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit

LANE = {"batch": 7, "lane": 0}
DENIED = kafka_error("TOPIC_AUTHORIZATION_FAILED", abortable=True)
FENCED = kafka_error("_FENCED", fatal=True)


@pytest.fixture
def new(broker: FakeBroker) -> Callable[..., Transaction]:
    """Transactions of lane 0, on a sink with one partition."""
    broker.topic("orders")

    def make(**kafka: Any) -> Transaction:
        return Transaction(kafka, "orders-0", 60_000, "orders")

    return make


def an_open(new: Callable[..., Transaction]) -> Transaction:
    made = new()
    made.begin()
    return made


# The fence


def test_a_new_transaction_aborts_what_the_former_owner_of_the_lane_left_open(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    former = an_open(new)
    former.produce("orders", value=b"old")
    former.flush()
    assert broker.partition("orders").stable == 0
    second = an_open(new)
    assert broker.partition("orders").stable == broker.partition("orders").high
    with pytest.raises(Fenced, match="60 s"):
        former.commit("commit", LANE)
    second.produce("orders", value=b"new")
    second.flush()
    second.commit("commit", LANE)
    assert broker.values("orders") == [b"new"]


def test_the_fence_is_repeated_while_kafka_says_that_it_can_be(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    broker.fail("init_transactions", *[kafka_error("COORDINATOR_LOAD_IN_PROGRESS", retriable=True)] * 3)
    new()
    assert broker.names_of_calls().count("init_transactions") == 4


def test_a_fence_that_does_not_succeed_in_time_is_an_error(
    broker: FakeBroker, new: Callable[..., Transaction], clock: FakeClock
) -> None:
    def refuse() -> None:
        clock.now += 10
        broker.fail("init_transactions", refuse)
        raise KafkaException(kafka_error("COORDINATOR_LOAD_IN_PROGRESS", retriable=True))

    broker.fail("init_transactions", refuse)
    with pytest.raises(SinkError, match="orders-0"):
        new()
    assert INIT_SECONDS <= clock.now <= INIT_SECONDS + 10


def test_a_user_without_the_right_to_the_lane_is_rejected(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    broker.fail("init_transactions", kafka_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))
    with pytest.raises(SinkRejected, match="orders-0"):
        new()


@pytest.mark.parametrize(("given", "kbytes"), [({}, QUEUE_KBYTES), ({"queue.buffering.max.kbytes": 5}, 5)])
def test_the_queue_of_a_lane_is_bounded_in_bytes_unless_the_user_sets_another_bound(
    new: Callable[..., Transaction], given: dict[str, Any], kbytes: int
) -> None:
    assert new(**given).producer.settings["queue.buffering.max.kbytes"] == kbytes


def test_a_lanes_identity_and_timeout_cannot_be_overridden_by_the_connection(new: Callable[..., Transaction]) -> None:
    settings = new(**{"transactional.id": "mine", "transaction.timeout.ms": 5}).producer.settings
    assert (settings["transactional.id"], settings["transaction.timeout.ms"]) == ("orders-0", 60_000)


# Records


def test_a_key_goes_to_the_partition_where_java_and_spark_put_it(new: Callable[..., Transaction]) -> None:
    assert new().producer.settings["partitioner"] == "murmur2_random"


def test_readers_see_records_after_the_commit_and_not_before(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    transaction = an_open(new)
    transaction.produce("orders", key=b"k", value=b"v")
    transaction.flush()
    assert (broker.values("orders"), broker.partition("orders").high) == ([], 1)
    transaction.commit("commit", LANE)
    assert broker.values("orders") == [b"v"]


def test_readers_never_see_what_was_aborted(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    transaction = an_open(new)
    transaction.produce("orders", value=b"v")
    transaction.flush()
    transaction.abort()
    partition = broker.partition("orders")
    assert (broker.values("orders"), partition.stable) == ([], partition.high)


def test_a_full_queue_is_waited_for(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    transaction = an_open(new)
    producer = transaction.producer
    producer.room = 1
    transaction.produce("orders", value=b"1")
    broker.fail("poll", producer.flush)
    transaction.produce("orders", value=b"2")
    transaction.flush()
    transaction.commit("commit", LANE)
    assert broker.values("orders") == [b"1", b"2"]


@pytest.mark.parametrize(("reason", "error"), [(DENIED, SinkRejected), (FENCED, Fenced)])
def test_a_broken_transaction_ends_the_wait_for_a_full_queue(
    broker: FakeBroker, new: Callable[..., Transaction], reason: Any, error: type[SinkError]
) -> None:
    transaction = an_open(new)
    producer = transaction.producer
    producer.room = 0
    broker.fail("poll", lambda: None, lambda: setattr(producer, "broken", reason))
    with pytest.raises(error, match="orders-0"):
        transaction.produce("orders", value=b"v")


@pytest.mark.parametrize(("reason", "error"), [(DENIED, SinkRejected), (FENCED, Fenced)])
def test_a_broken_transaction_ends_the_wait_for_a_record_that_is_never_delivered(
    broker: FakeBroker, new: Callable[..., Transaction], reason: Any, error: type[SinkError]
) -> None:
    """librdkafka forgets a record of a broken transaction at times."""
    transaction = an_open(new)
    producer = transaction.producer
    transaction.produce("orders", value=b"v")
    producer.undeliverable = 1
    broker.fail("flush", lambda: None, lambda: None, lambda: setattr(producer, "broken", reason))
    with pytest.raises(error, match="orders-0"):
        transaction.flush()
    assert broker.names_of_calls().count("flush") == 3


def test_the_first_delivery_that_failed_is_the_reason_and_not_the_state_that_it_leaves(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    transaction = an_open(new)

    def delivery_fails() -> None:
        for name in ("MSG_SIZE_TOO_LARGE", "_PURGE_QUEUE"):
            transaction.producer.settings["on_delivery"](kafka_error(name), None)
        transaction.producer.broken = kafka_error("_STATE", abortable=True)

    broker.fail("flush", delivery_fails)
    with pytest.raises(SinkRejected, match="MSG_SIZE_TOO_LARGE"):
        transaction.flush()


def test_a_record_that_the_client_refuses_is_named(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    transaction = an_open(new)
    broker.fail("produce", kafka_error("MSG_SIZE_TOO_LARGE"))
    with pytest.raises(SinkRejected, match=r"5 bytes.*b'key-1'.*orders"):
        transaction.produce("orders", key=b"key-1", value=b"value")


# The end


def test_a_commit_that_can_be_repeated_is_repeated(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    transaction = an_open(new)
    transaction.produce("orders", value=b"v")
    transaction.flush()
    broker.fail("commit_transaction", *[kafka_error("_TIMED_OUT", retriable=True)] * 5)
    transaction.commit("commit", LANE)
    assert broker.values("orders") == [b"v"]


def test_an_unanswered_commit_is_never_aborted(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    """It may have taken place: an abort would be the end of what readers have seen, and a second write would double it."""
    transaction = an_open(new)
    transaction.produce("orders", value=b"v")
    transaction.flush()
    broker.fail("answer_to_commit", kafka_error("_TRANSPORT"))
    with pytest.raises(CommitUnknown, match="orders-0") as unknown:
        transaction.commit("commit", LANE)
    assert unknown.value.restart_may_help
    assert "abort_transaction" not in broker.names_of_calls()
    assert broker.values("orders") == [b"v"]


def test_a_commit_that_kafka_wants_aborted_is_aborted_and_reports_its_reason(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    transaction = an_open(new)
    transaction.produce("orders", value=b"v")
    transaction.flush()
    broker.fail("commit_transaction", DENIED)
    with pytest.raises(SinkRejected, match="commit lane 0"):
        transaction.commit("commit lane 0", LANE)
    assert broker.names_of_calls()[-1] == "abort_transaction"
    assert broker.values("orders") == []


def test_a_record_that_fails_during_the_commit_is_the_reason_that_is_reported(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    broker.topics["orders"].settings["max.message.bytes"] = "10"
    transaction = an_open(new)
    transaction.produce("orders", value=b"longer than ten bytes")
    with pytest.raises(SinkRejected, match="MSG_SIZE_TOO_LARGE"):
        transaction.commit("commit", LANE)
    assert broker.values("orders") == []


def test_a_delivery_that_failed_is_the_reason_for_a_commit_that_kafka_wants_aborted(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    transaction = an_open(new)
    transaction.producer.settings["on_delivery"](kafka_error("MSG_SIZE_TOO_LARGE"), None)
    broker.fail("commit_transaction", kafka_error("_INCONSISTENT", abortable=True))
    with pytest.raises(SinkRejected, match="MSG_SIZE_TOO_LARGE"):
        transaction.commit("commit", {})


def test_a_commit_of_a_fenced_producer_names_both_causes(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    transaction = an_open(new)
    broker.fail("commit_transaction", FENCED)
    with pytest.raises(Fenced, match=r"60 s.*transaction_timeout"):
        transaction.commit("commit", LANE)
    assert "abort_transaction" not in broker.names_of_calls()


def test_a_commit_that_kafka_rejects_is_not_one_whose_end_is_unknown(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    transaction = an_open(new)
    broker.fail("commit_transaction", kafka_error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))
    with pytest.raises(SinkRejected, match="commit lane 0") as rejected:
        transaction.commit("commit lane 0", LANE)
    assert not rejected.value.restart_may_help
    assert "abort_transaction" not in broker.names_of_calls()


def test_an_abort_that_kafka_does_not_take_is_left_to_the_next_owner(
    broker: FakeBroker, new: Callable[..., Transaction]
) -> None:
    transaction = an_open(new)
    broker.fail("abort_transaction", kafka_error("_TIMED_OUT"))
    transaction.abort()


def test_closing_sends_kafka_nothing(broker: FakeBroker, new: Callable[..., Transaction]) -> None:
    transaction = an_open(new)
    transaction.produce("orders", value=b"v")
    transaction.flush()
    before = list(broker.calls)
    transaction.close()
    assert broker.calls == before
    assert broker.partition("orders").stable == 0


def test_a_closed_transaction_keeps_no_client(new: Callable[..., Transaction]) -> None:
    """A task writes a lane of every batch: each client that stayed would keep its threads and connections."""
    transaction = new()
    transaction.close()
    assert transaction.producer is None
