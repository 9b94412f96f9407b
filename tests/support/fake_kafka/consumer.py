"""confluent-kafka's consumer with partitions assigned by hand, on a Kafka in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, TopicPartition

from tests.support.fake_kafka.admin import metadata
from tests.support.fake_kafka.broker import FakeBroker, FakePartition

UNKNOWN_WATERMARKS = (OFFSET_INVALID, OFFSET_INVALID)


class Message:
    def __init__(self, where: TopicPartition, record: Any = None, error: KafkaError | None = None) -> None:
        self._where, self._record, self._error = where, record, error

    def topic(self) -> str:
        return str(self._where.topic)

    def partition(self) -> int:
        return int(self._where.partition)

    def offset(self) -> int:
        return int(self._where.offset)

    def key(self) -> bytes | None:
        return None if self._record is None else self._record.key

    def value(self) -> bytes | None:
        return None if self._record is None else self._record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return None if self._record is None else list(self._record.headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 1, int(self._record.time * 1000)

    def error(self) -> KafkaError | None:
        return self._error


class FakeConsumer:
    """Each poll yields one record, one end of a partition, or None for a skipped offset.

    It reads committed records only, unless its isolation level is `read_uncommitted`.
    """

    def __init__(self, broker: FakeBroker, settings: Mapping[str, Any]) -> None:
        self.broker, self.settings = broker, settings
        self.delivered = 0
        #: What a poll costs, for a test with a clock.
        self.before_poll: Callable[[], None] = lambda: None
        #: An offset that is never delivered.
        self.stuck_at: int | None = None
        #: A poll passes over skipped offsets, as the real one does when the record behind them has arrived already.
        self.passes_over_skipped = False
        self.closed = False
        self._positions: dict[tuple[str, int], int] = {}
        self._paused: set[tuple[str, int]] = set()
        #: Partitions of which an answer with records has come; it brings the high watermark along.
        self._answered: set[tuple[str, int]] = set()

    def __enter__(self) -> FakeConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return metadata(self.broker, topic)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The last stable offset when Kafka is asked; the high watermark from the newest answer otherwise."""
        log = self._log(partition.topic, partition.partition)
        if cached:
            known = (partition.topic, partition.partition) in self._answered
            return (log.low, log.high) if known else UNKNOWN_WATERMARKS
        self.broker.called("get_watermark_offsets", partition.partition)
        return log.low, log.stable

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._positions = {(p.topic, p.partition): p.offset for p in partitions}
        self._paused.clear()

    def unassign(self) -> None:
        self._positions.clear()

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for p in partitions:
            del self._positions[p.topic, p.partition]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused |= {(p.topic, p.partition) for p in partitions}

    def position(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        known = self._positions
        return [
            TopicPartition(p.topic, p.partition, known.get((p.topic, p.partition), OFFSET_INVALID)) for p in partitions
        ]

    def poll(self, seconds: float = -1) -> Message | None:
        self.before_poll()
        self.broker.called("poll")
        for where, at in self._positions.items():
            if where in self._paused or at == self.stuck_at:
                continue
            log = self._log(*where)
            self._answered.add(where)
            if at >= (log.high if self.settings.get("isolation.level") == "read_uncommitted" else log.stable):
                if not self.settings.get("enable.partition.eof"):
                    continue
                end = KafkaError(KafkaError._PARTITION_EOF)
                return Message(TopicPartition(*where, at), error=end)
            self._positions[where] = at + 1
            record = log.log[at]
            if record is None or (record.aborted and self.settings.get("isolation.level") != "read_uncommitted"):
                return self.poll(seconds) if self.passes_over_skipped else None
            self.delivered += 1
            return Message(TopicPartition(*where, at), record)
        if self.broker.clock is not None:
            # As the real one: it waits for a record that does not come, so a loop with a deadline ends.
            self.broker.clock.now += max(0.0, seconds)
        return None

    def consume(self, count: int, seconds: float = -1) -> list[Message]:
        """What is there, up to that many messages; it waits only if nothing is."""
        found: list[Message] = []
        while len(found) < count:
            before = dict(self._positions)
            if (message := self.poll(0)) is not None:
                found.append(message)
            elif before == self._positions:
                break
        if not found and self.broker.clock is not None:
            self.broker.clock.now += max(0.0, seconds)
        return found

    def committed(self, partitions: Iterable[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        group = self.settings["group.id"]
        self.broker.called("committed", group)
        known = self.broker.groups.get(group, {})
        return [
            TopicPartition(p.topic, p.partition, known.get((p.topic, p.partition), OFFSET_INVALID)) for p in partitions
        ]

    def _log(self, topic: str, number: int) -> FakePartition:
        return self.broker.partition(topic, number)
