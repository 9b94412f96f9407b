"""One Kafka transaction of one lane, with a producer of its own.

One producer instance does one ``init_transactions`` and one transaction, then it is gone: librdkafka has no
Transactions V2, so a delayed commit could otherwise end a later transaction of the same epoch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from ckpt_stream import crash
from ckpt_stream.errors import CommitUnknown, Fenced, SinkError, SinkRejected
from ckpt_stream.kafka_errors import sink_error

#: How long a lane goes on asking a Kafka that answers "try again" before it fails the task.
INIT_SECONDS = 60.0
#: An abort is a courtesy to readers: if Kafka does not take it, the next owner's fence aborts the transaction.
ABORT_SECONDS = 10.0

#: What a lane holds of records that are not delivered yet: enough that the brokers never wait for it, and a bound for
#: records of any size.
QUEUE_KBYTES = 128 * 1024


class Transaction:
    """Fences the lane's former owner when built; then carries one transaction to its end."""

    def __init__(self, kafka: Mapping[str, Any], transactional_id: str, timeout_ms: int, topic: str) -> None:
        from confluent_kafka import Producer

        self.id = transactional_id
        self.timeout_ms = timeout_ms
        failures: list[Any] = []
        settings: dict[str, Any] = {
            "partitioner": "murmur2_random",  # where Java and Spark put a key
            "reconnect.backoff.ms": 10,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            **kafka,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "delivery.report.only.error": True,
            # Only a list: a callback that knew this object would keep the client alive for ever.
            "on_delivery": _failure_collector(failures),
        }
        self._failures = failures
        self._log = _ProtocolLog() if crash.COMMIT_SENT in crash.armed_points else None
        if self._log is not None:
            settings.update(debug="protocol", logger=self._log)
        self.producer: Any = Producer(settings)
        self._fence(topic)

    @property
    def _failed(self) -> Any | None:
        """The first delivery that failed for good."""
        return self._failures[0] if self._failures else None

    def _broken(self) -> Any | None:
        """Why the open transaction cannot go on, if it cannot: Kafka would not let it write to a partition, or fenced it.

        Asked by beginning it again, which an open transaction refuses with nothing but its state: librdkafka has no other
        question for it. It throws away the records of a broken transaction without naming the reason to them, refuses
        further ones as "erroneous state", and at times forgets one, which then waits for its own timeout.
        """
        from confluent_kafka import KafkaException

        if self._failed is not None:
            return self._failed
        try:
            self.producer.begin_transaction()
        except KafkaException as e:
            error = e.args[0]
            return error if error.txn_requires_abort() or error.fatal() else None
        raise AssertionError(f"{self.id} was asked about a transaction that it had not begun")

    def close(self) -> None:
        """Let the client go, without a word to Kafka: what is still open is the next owner's to abort."""
        self.producer = None

    def _fence(self, topic: str) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + INIT_SECONDS
        try:
            # If librdkafka has no connection when it looks for the coordinator, it looks again 500 ms later. The answer to
            # the first question makes it drop the connection to the bootstrap address; the second one waits for the next.
            for _ in range(2):
                self.producer.list_topics(topic, timeout=INIT_SECONDS)
            while True:
                try:
                    self.producer.init_transactions(max(1.0, deadline - time.monotonic()))
                    return
                except KafkaException as e:
                    if not e.args[0].retriable() or time.monotonic() > deadline:
                        raise
        except KafkaException as e:
            raise sink_error(e, f"take over the lane {self.id}") from e

    def begin(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self.producer.begin_transaction()
        except KafkaException as e:
            raise self._explained(sink_error(e, f"begin a transaction of {self.id}")) from e

    def produce(self, topic: str, **record: Any) -> None:
        """Hand one record to the client; a full queue is waited for, as long as nothing has failed."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self.producer.produce(topic, **record)
                return
            except BufferError:
                self.producer.poll(0.01)
                self._go_on()
            except KafkaException as e:
                self._go_on()
                raise sink_error(e, f"write {_named(record)} to {topic}") from e

    def flush(self) -> None:
        """Wait until every record is delivered or has failed."""
        while self.producer.flush(1.0) > 0:
            self._go_on()
        self._go_on()

    def commit(self, doing: str, where: Mapping[str, Any]) -> None:
        """Commit without a time limit of our own. What was sent and not answered is never aborted: the ledger tells."""
        from confluent_kafka import KafkaException

        if self._log is not None and crash.is_due(crash.COMMIT_SENT, **where):
            self._commit_and_crash(where)
        while True:
            try:
                self.producer.commit_transaction()
                return
            except KafkaException as e:
                error = e.args[0]
                if error.retriable():
                    continue
                known = self._explained(sink_error(self._failed or e, doing))
                if error.txn_requires_abort():
                    self.abort()
                    raise known from e
                if isinstance(known, Fenced | SinkRejected):
                    raise known from e
                raise CommitUnknown(
                    f"The answer to the commit of {self.id} did not arrive ({error.str()}). Nothing was aborted: the "
                    "next attempt reads the ledger and either skips the lane or writes it."
                ) from e

    def abort(self) -> None:
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self.producer.purge()
            self.producer.abort_transaction(ABORT_SECONDS)

    def _go_on(self) -> None:
        if (why := self._broken()) is not None:
            raise self._explained(sink_error(why, f"write in a transaction of {self.id}"))

    def _explained(self, error: SinkError) -> SinkError:
        """Being fenced in the middle of a transaction has two causes; only one of them is another driver."""
        if not isinstance(error, Fenced):
            return error
        return Fenced(
            f"{error} Either another driver took over, or the transaction was open for longer than its timeout of "
            f"{self.timeout_ms / 1000:.0f} s and the broker aborted it: then raise transaction_timeout or lower "
            "max_offsets_per_batch."
        )

    def _commit_and_crash(self, where: Mapping[str, Any]) -> None:
        """The commit goes out from a thread; the process dies when librdkafka says that it was sent."""
        assert self._log is not None  # noqa: S101
        threading.Thread(target=self.producer.commit_transaction, daemon=True).start()
        while not self._log.commit_sent:
            self.producer.poll(0.0005)
        crash.reach(crash.COMMIT_SENT, **where)


def _failure_collector(failures: list[Any]) -> Any:
    def on_delivery(error: Any, _message: Any) -> None:
        # Purged records fail too, but only because of an earlier failure.
        if error is not None and not failures and error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            failures.append(error)

    return on_delivery


class _ProtocolLog:
    """Takes librdkafka's protocol log when the crash point 'commit sent' is armed."""

    def __init__(self) -> None:
        self.commit_sent = False

    def log(self, _level: int, message: str, *args: Any, **_kwargs: Any) -> None:
        if "Sent EndTxnRequest" in (message % args if args else message):
            self.commit_sent = True


def _named(record: Mapping[str, Any]) -> str:
    value, key = record.get("value"), record.get("key")
    return f"a record of {len(value or b'')} bytes with key {bytes(key or b'')[:80]!r}"
