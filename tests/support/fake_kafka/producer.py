"""confluent-kafka's transactional producer, on a Kafka in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.support.fake_kafka.admin import metadata
from tests.support.fake_kafka.broker import Entry, FakeBroker
from tests.support.fake_kafka.errors import kafka_error

READY, OPEN, ABORTABLE = "Ready", "InTransaction", "AbortableError"


class FakeProducer:
    """Keeps records in its queue until `flush`; they are in the log then, and seen by readers after the commit."""

    def __init__(self, broker: FakeBroker, settings: Mapping[str, Any]) -> None:
        self.broker, self.settings = broker, settings
        self.id = str(settings["transactional.id"])
        self.state: str | None = None
        self.fenced = False
        self.queue: list[tuple[str, dict[str, Any]]] = []
        #: How many records the queue takes.
        self.room = 100_000
        #: The error that the open transaction is broken by, as far as the client knows.
        self.broken: KafkaError | None = None
        #: Records that a flush leaves in the queue.
        self.undeliverable = 0

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return metadata(self.broker, topic)

    def init_transactions(self, timeout: float = -1) -> None:
        self.broker.called("init_transactions", self.id)
        self.broker.take_over(self.id, self)
        self.state = READY

    def begin_transaction(self) -> None:
        """An open transaction refuses this with its state, a broken one with what broke it."""
        self.broker.called("begin_transaction", self.id)
        self._refuse_fenced()
        if self.broken is not None:
            raise KafkaException(self.broken)
        if self.state != READY:
            raise KafkaException(KafkaError(KafkaError._STATE, f"Operation not valid in state {self.state}"))
        self.state = OPEN

    def produce(self, topic: str, value: bytes | None = None, key: bytes | None = None, **record: Any) -> None:
        self.broker.called("produce", topic)
        if self.state != OPEN or self.broken is not None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Operation not valid in erroneous state"))
        if len(self.queue) >= self.room:
            raise BufferError("Local: Queue full")
        self.queue.append((topic, {**record, "key": key, "value": value}))

    def poll(self, _seconds: float = -1) -> int:
        self.broker.called("poll", self.id)
        return 0

    def flush(self, _seconds: float = -1) -> int:
        self.broker.called("flush", self.id)
        deliverable = len(self.queue) - self.undeliverable
        for topic, record in self.queue[: max(0, deliverable)]:
            self._deliver(topic, record)
        self.queue = self.queue[max(0, deliverable) :]
        return len(self.queue)

    def purge(self) -> None:
        self.queue.clear()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Flushes first, as librdkafka does; a fault that is a function runs before the commit takes place."""
        self.broker.called("commit_transaction", self.id)
        self._refuse_fenced()
        self.flush()
        if self.broken is not None:
            raise KafkaException(self.broken)
        self.broker.end_transaction(self, commit=True)
        self.state = READY
        self.broker.called("answer_to_commit", self.id)

    def abort_transaction(self, timeout: float = -1) -> None:
        self.broker.called("abort_transaction", self.id)
        self._refuse_fenced()
        self.broker.end_transaction(self, commit=False)
        self.state, self.broken = READY, None

    def _deliver(self, topic: str, record: Mapping[str, Any]) -> None:
        if (error := self._refusal(topic, record)) is not None:
            self.broken = error
            self.settings["on_delivery"](error, None)
            return
        partition = self.broker.partition(topic, record.get("partition", 0))
        partition.log.append(
            Entry(record.get("key"), record.get("value"), 0.0, self, tuple(record.get("headers") or ()))
        )

    def _refusal(self, topic: str, record: Mapping[str, Any]) -> KafkaError | None:
        limit = int(self.broker.topics[topic].settings.get("max.message.bytes", "1048576"))
        return kafka_error("MSG_SIZE_TOO_LARGE", abortable=True) if len(record.get("value") or b"") > limit else None

    def _refuse_fenced(self) -> None:
        if self.fenced:
            raise KafkaException(kafka_error("_FENCED", fatal=True))
