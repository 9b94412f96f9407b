"""One Kafka transaction of one lane, with a new producer.

Each producer is used for one ``init_transactions`` and one transaction: librdkafka has no Transactions V2, so a delayed
commit could otherwise end a later transaction of the same epoch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from ckpt_stream.errors import CommitUnknown, Fenced, SinkError, SinkRejected
from ckpt_stream.kafka.client_errors import to_sink_error
from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.deadline import Deadline

#: How long a lane repeats a request to which Kafka answers with a retriable error; then the task fails.
INIT_SECONDS = 60.0
#: How long an abort may take. It only shortens the wait of readers: without it, the next producer's fence aborts the transaction.
ABORT_SECONDS = 10.0

#: How many bytes of undelivered records a lane holds: enough to keep the brokers busy, and limited for records of any size.
QUEUE_KBYTES = 128 * 1024


class Transaction:
    """Fences the lane's former producer when it is created; then runs one transaction."""

    def __init__(self, kafka: Mapping[str, Any], transactional_id: str, timeout_ms: int, topic: str) -> None:
        from confluent_kafka import Producer

        self.id = transactional_id
        self.timeout_ms = timeout_ms
        failures: list[Any] = []
        settings: dict[str, Any] = {
            "partitioner": "murmur2_random",  # the partitioner of Java and Spark
            "reconnect.backoff.ms": 10,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            **kafka,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "delivery.report.only.error": True,
            # The callback refers to a list only: a reference to this object would keep the client alive.
            "on_delivery": _failure_collector(failures),
        }
        self._failures = failures
        self._log = _ProtocolLog() if crash_points.COMMIT_SENT in crashes.armed_points else None
        if self._log is not None:
            settings.update(debug="protocol", logger=self._log)
        self.producer: Any = Producer(settings)
        self._fence(topic)

    @property
    def _failed_delivery(self) -> Any | None:
        """The first delivery that failed for good."""
        return self._failures[0] if self._failures else None

    def _why_broken(self) -> Any | None:
        """The error that broke the open transaction, if there is one: Kafka refused a write to a partition, or fenced it.

        librdkafka shows it only when the transaction is begun again: an open transaction refuses that because of its state, a
        broken one with the error. Other calls do not show the error: the records of a broken transaction are dropped without it,
        further records are refused with "erroneous state", and some records stay until their timeout.
        """
        from confluent_kafka import KafkaException

        if self._failed_delivery is not None:
            return self._failed_delivery
        try:
            self.producer.begin_transaction()
        except KafkaException as e:
            error = e.args[0]
            return error if error.txn_requires_abort() or error.fatal() else None
        raise AssertionError(f"{self.id} was asked about a transaction that it had not begun")

    def close(self) -> None:
        """Drop the client without a request to Kafka; the next producer of the lane aborts an open transaction."""
        self.producer = None

    def _fence(self, topic: str) -> None:
        from confluent_kafka import KafkaException

        deadline = Deadline.after(INIT_SECONDS)
        try:
            # If librdkafka has no connection when it looks for the coordinator, it looks again 500 ms later. After the first
            # answer it drops the connection to the bootstrap address, so the second request waits for the next connection.
            for _ in range(2):
                self.producer.list_topics(topic, timeout=INIT_SECONDS)
            while True:
                try:
                    self.producer.init_transactions(max(1.0, deadline.left))
                    return
                except KafkaException as e:
                    if not e.args[0].retriable() or deadline.passed:
                        raise
        except KafkaException as e:
            raise to_sink_error(e, f"fence the lane {self.id}") from e

    def begin(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self.producer.begin_transaction()
        except KafkaException as e:
            raise self._explain_fencing(to_sink_error(e, f"begin a transaction of {self.id}")) from e

    def produce(self, topic: str, **record: Any) -> None:
        """Pass one record to the client. Waits while the client's queue is full, unless the transaction is broken."""
        from confluent_kafka import KafkaException

        while True:
            try:
                self.producer.produce(topic, **record)
                return
            except BufferError:
                self.producer.poll(0.01)
                self._raise_if_broken()
            except KafkaException as e:
                self._raise_if_broken()
                raise to_sink_error(e, f"write {_describe(record)} to {topic}") from e

    def flush(self) -> None:
        """Wait until every record is delivered or has failed."""
        while self.producer.flush(1.0) > 0:
            self._raise_if_broken()
        self._raise_if_broken()

    def commit(self, action: str, where: Mapping[str, Any]) -> None:
        """Commit, without a time limit. A commit that was sent and not answered is never aborted: it may have succeeded.

        ``action`` names the commit in errors, ``where`` its batch and lane for crash points.
        """
        from confluent_kafka import KafkaException

        if self._log is not None and crashes.is_due(crash_points.COMMIT_SENT, **where):
            self._commit_and_crash(where)
        while True:
            try:
                self.producer.commit_transaction()
                return
            except KafkaException as e:
                error = e.args[0]
                if error.retriable():
                    continue
                known = self._explain_fencing(to_sink_error(self._failed_delivery or e, action))
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

    def _raise_if_broken(self) -> None:
        if (why := self._why_broken()) is not None:
            raise self._explain_fencing(to_sink_error(why, f"write in a transaction of {self.id}"))

    def _explain_fencing(self, error: SinkError) -> SinkError:
        """Add the possible reasons to a fencing in the middle of a transaction: another driver, or the broker after a timeout."""
        if not isinstance(error, Fenced):
            return error
        return Fenced(
            f"{error} Either another driver writes to this lane, or the transaction was open for longer than its timeout of "
            f"{self.timeout_ms / 1000:.0f} s and the broker aborted it: then raise transaction_timeout or lower "
            "max_offsets_per_batch."
        )

    def _commit_and_crash(self, where: Mapping[str, Any]) -> None:
        """Send the commit from a thread, and kill the process when librdkafka logs that the commit was sent."""
        assert self._log is not None  # noqa: S101
        threading.Thread(target=self.producer.commit_transaction, daemon=True).start()
        while not self._log.commit_sent:
            self.producer.poll(0.0005)
        crashes.reach(crash_points.COMMIT_SENT, **where)


def _failure_collector(failures: list[Any]) -> Any:
    def on_delivery(error: Any, _message: Any) -> None:
        # Purged records fail too, but only as a result of an earlier failure.
        if error is not None and not failures and error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            failures.append(error)

    return on_delivery


class _ProtocolLog:
    """Receives librdkafka's protocol log when the crash point 'commit sent' is armed."""

    def __init__(self) -> None:
        self.commit_sent = False

    def log(self, _level: int, message: str, *args: Any, **_kwargs: Any) -> None:
        if "Sent EndTxnRequest" in (message % args if args else message):
            self.commit_sent = True


def _describe(record: Mapping[str, Any]) -> str:
    value, key = record.get("value"), record.get("key")
    return f"a record of {len(value or b'')} bytes with key {bytes(key or b'')[:80]!r}"
