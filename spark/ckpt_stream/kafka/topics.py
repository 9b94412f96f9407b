"""What the driver asks Kafka about topics: their id, partitions, ends and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ckpt_stream.errors import SinkRejected
from ckpt_stream.kafka.admin_client import ASK_SECONDS, NO_SUCH_TOPIC, admin_client, retry_transient
from ckpt_stream.kafka.ask_topic_ends import Which, list_offsets
from ckpt_stream.kafka.client_errors import to_sink_error
from ckpt_stream.kafka.connection_errors import ConnectionErrors
from ckpt_stream.kafka.ledger_safety import Durability
from ckpt_stream.kafka.topic_settings import list_topic_settings, topic_settings
from ckpt_stream.protocol.deadline import Deadline

T = TypeVar("T")

#: A transaction's marker reaches its topic within milliseconds, unless a broker is down.
MARKER_SECONDS = 3.0
#: A broker that has just started may not know a topic yet: a topic counts as gone only if it is still unknown after this time.
GONE_SECONDS = 5.0
#: Kafka's own topics, which Spark leaves out of every pattern. librdkafka's metadata does not mark them as internal.
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True)
class Topic:
    name: str
    #: Changes when a topic is deleted and created again.
    id: str
    partitions: int
    #: The brokers of each partition.
    replicas: tuple[tuple[int, ...], ...] = ()
    #: Partitions of which not every replica is in sync.
    incomplete: frozenset[int] = frozenset()


class Topics:
    """An admin client for one run of the driver."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        self._connection_errors = ConnectionErrors()
        self.admin = admin_client(kafka, error_cb=self._connection_errors.callback())
        #: How many partitions each topic had when it was described last.
        self._partitions: dict[str, int] = {}

    def close(self) -> None:
        """Drop the client."""
        self.admin = None

    def find(self, name: str, *, expected: bool = False) -> Topic | None:
        """The topic, or None if it does not exist. For an expected topic, Kafka must give that answer for some seconds."""
        from confluent_kafka import KafkaException

        def ask() -> Any:
            return self._connection_errors.wait_for(self.admin, self._description(name))

        try:
            found = _unless_gone(ask) if expected else retry_transient(ask)
        except KafkaException as e:
            error = e.args[0]
            if error.name() in NO_SUCH_TOPIC:
                return None
            if error.name() == "_TIMED_OUT" and self._connection_errors.newest is not None:
                error = self._connection_errors.newest  # the reason that there was no answer
            raise to_sink_error(error, f"describe the topic {name}") from e
        self._partitions[name] = len(found.partitions)
        partitions = sorted(found.partitions, key=lambda p: p.id)
        replicas = tuple(tuple(broker.id for broker in p.replicas) for p in partitions)
        incomplete = frozenset(p.id for p in partitions if len(p.isr) < len(p.replicas))
        return Topic(name, str(found.topic_id), len(partitions), replicas, incomplete)

    def get(self, name: str, role: str) -> Topic:
        """Like `find`, for a topic that must exist."""
        topic = self.find(name, expected=True)
        if topic is None:
            raise SinkRejected(
                f"The {role} topic {name!r} does not exist. Nothing was written. What helps: create it with the partitions "
                f"and replication it should have, e.g. `kafka-topics.sh --create --topic {name} --partitions 4`, or "
                "correct its name."
            )
        return topic

    def sink_and_ends(self, sink: str, *others: str) -> tuple[Topic | None, dict[str, dict[str, int]]]:
        """The sink as it is now, and where it and other topics end: two requests, sent at once."""
        from confluent_kafka import KafkaException

        partitions = {name: range(self._partitions.get(name, 0)) for name in (sink, *others)}

        def ask() -> tuple[Any, dict[str, dict[str, int]]]:
            description = self._description(sink)
            try:
                listed = list_offsets(self.admin, partitions, "high")
            except KafkaException:
                # For a deleted topic, Kafka reports here only that it has no leader; its description names the reason.
                description.result()
                raise
            ends = {topic: {str(p): offset for p, offset in found.items()} for topic, found in listed.items()}
            return description.result(), ends

        try:
            found, ends = _unless_gone(ask)
        except KafkaException as e:
            if e.args[0].name() in NO_SUCH_TOPIC:
                return None, {}
            raise to_sink_error(e, f"describe the topic {sink} and list where it ends") from e
        topic = Topic(sink, str(found.topic_id), len(found.partitions))
        if topic.partitions != self._partitions.get(sink):
            # Partitions were added: ask once more, for all partitions.
            self._partitions[sink] = topic.partitions
            return self.sink_and_ends(sink, *others)
        return topic, ends

    def wait_until_readable(self, name: str) -> bool:
        """Wait until readers of committed records see all records of a topic. False: an open transaction hides some of them.

        The end is read only once, at the beginning, so records that a stream writes during the wait do not prolong it.
        """
        ends = self._ends(name, "high")

        def is_readable() -> bool:
            stable = self._ends(name, "stable")
            return all(stable.get(partition, 0) >= end for partition, end in ends.items())

        return bool(Deadline.after(MARKER_SECONDS).wait_for(is_readable))

    def max_message_bytes(self, name: str) -> int | None:
        """The largest record batch that a topic accepts; None if this user may not see it."""
        found = topic_settings(self.admin, name).get("max.message.bytes")
        return int(found) if found else None

    def durability(self, *topics: Topic) -> list[Durability]:
        """The durability of topics; without their settings if this user may not see them."""
        from confluent_kafka import KafkaException

        names = [topic.name for topic in topics]
        try:
            # These topics exist: if a broker does not know a new topic yet, the request is repeated.
            settings = retry_transient(lambda: list_topic_settings(self.admin, names), also=NO_SUCH_TOPIC[:1])
        except KafkaException as e:
            raise to_sink_error(e, f"describe the settings of {', '.join(names)}") from e
        return [Durability(t.name, t.replicas, found, t.incomplete) for t, found in zip(topics, settings, strict=True)]

    def delete(self, name: str) -> None:
        from confluent_kafka import KafkaException

        try:
            self.admin.delete_topics([name], operation_timeout=ASK_SECONDS)[name].result()
        except KafkaException as e:
            raise to_sink_error(e, f"delete the topic {name}") from e

    def source_partitions(self, names: tuple[str, ...], pattern: str | None) -> dict[str, list[int]]:
        """The partitions of the source: of the named topics, or of the topics that match the pattern."""
        from confluent_kafka import KafkaException

        try:
            metadata = self.admin.list_topics(timeout=ASK_SECONDS)
        except KafkaException as e:
            raise to_sink_error(e, "list the topics") from e
        wanted = source_topics(names, pattern, lambda: metadata.topics)
        missing = [t for t in wanted if t not in metadata.topics] or ([] if wanted else ["any topic that matches"])
        if missing:
            raise SinkRejected(
                f"The source has no topic {', '.join(missing)}{' ' + repr(pattern) if pattern else ''}. What helps: create "
                "it, or correct the name."
            )
        return {t: sorted(metadata.topics[t].partitions) for t in wanted}

    def first_offsets(self, partitions: Mapping[str, list[int]]) -> dict[str, dict[int, int]]:
        """The first offset that each partition holds."""
        from confluent_kafka import KafkaException

        try:
            return retry_transient(lambda: list_offsets(self.admin, partitions, "earliest"))
        except KafkaException as e:
            raise to_sink_error(e, f"list where {', '.join(sorted(partitions))} begin") from e

    def _description(self, name: str) -> Any:
        from confluent_kafka import TopicCollection

        return self.admin.describe_topics(TopicCollection([name]), request_timeout=ASK_SECONDS)[name]

    def _ends(self, name: str, which: Which) -> Mapping[int, int]:
        from confluent_kafka import KafkaException

        partitions = {name: range(self._partitions.get(name, 0))}
        try:
            return retry_transient(lambda: list_offsets(self.admin, partitions, which)).get(name, {})
        except KafkaException as e:
            raise to_sink_error(e, f"list where the topic {name} ends") from e


def _unless_gone(ask: Callable[[], T]) -> T:
    """Ask Kafka; raises "no such topic" only if that is still the answer after some seconds."""
    from confluent_kafka import KafkaException

    try:
        return retry_transient(ask)
    except KafkaException as e:
        if e.args[0].name() not in NO_SUCH_TOPIC:
            raise
    return retry_transient(ask, GONE_SECONDS, also=NO_SUCH_TOPIC)


def source_topics(names: Iterable[str], pattern: str | None, known: Callable[[], Iterable[str]]) -> list[str]:
    """The topics of the source: the named topics, or all topics whose whole name matches. Kafka's own topics never match."""
    if not pattern:
        return sorted(names)
    return sorted(name for name in known() if name not in INTERNAL and re.fullmatch(pattern, name))
