"""How a transaction learns that it is broken, with a client that behaves as librdkafka does when it forgets a record."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ckpt_stream.errors import Fenced, SinkError, SinkRejected
from ckpt_stream.transaction import Transaction


class Client:
    """Has one record that never arrives; what is wrong with the transaction comes up after a few looks."""

    def __init__(self, *states: KafkaError) -> None:
        self.states = list(states)

    def flush(self, _seconds: float) -> int:
        return 1

    def poll(self, _seconds: float) -> int:
        return 0

    def produce(self, _topic: str, **_record: Any) -> None:
        raise BufferError

    def begin_transaction(self) -> None:
        raise KafkaException(self.states.pop(0))


OPEN = KafkaError(KafkaError._STATE, "Operation not valid in state InTransaction")
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed", False, False, True)
FENCED = KafkaError(KafkaError._FENCED, "fenced", True)


def transaction(*states: KafkaError) -> Transaction:
    made = Transaction.__new__(Transaction)
    made.id, made.timeout_ms, made._failures, made.producer = "orders.0", 60_000, [], Client(*states)
    return made


@pytest.mark.parametrize(("broken", "error"), [(DENIED, SinkRejected), (FENCED, Fenced)])
@pytest.mark.parametrize("does", [Transaction.flush, lambda it: it.produce("orders", value=b"v")])
def test_a_broken_transaction_ends_the_wait_for_a_record_that_never_arrives(
    broken: KafkaError, error: type[SinkError], does: Any
) -> None:
    waiting = transaction(OPEN, OPEN, broken)
    with pytest.raises(error, match=r"in a transaction of orders\.0"):
        does(waiting)
    assert waiting.producer.states == []


def test_a_delivery_that_failed_is_the_reason_that_is_told() -> None:
    waiting = transaction()
    waiting._failures.append(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))
    with pytest.raises(SinkRejected, match="MSG_SIZE_TOO_LARGE"):
        waiting.flush()


@pytest.mark.parametrize(("given", "kbytes"), [({}, 128 * 1024), ({"queue.buffering.max.kbytes": 5}, 5)])
def test_what_waits_in_a_lanes_client_is_bounded_in_bytes_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], kbytes: int
) -> None:
    seen: list[dict[str, Any]] = []

    def producer(settings: dict[str, Any]) -> Any:
        seen.append(settings)
        raise KafkaException(DENIED)

    monkeypatch.setattr("confluent_kafka.Producer", producer)
    with pytest.raises(KafkaException):
        Transaction(given, "orders-0", 60_000, "orders")
    assert [settings["queue.buffering.max.kbytes"] for settings in seen] == [kbytes]
