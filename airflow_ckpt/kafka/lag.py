"""The lag per source partition: the number of unread records, and the age of the oldest of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.admin_client import ASK_SECONDS
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.kafka.settings import Kafka, client_settings
from ckpt_stream.kafka.topics import source_topics
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.topic_ends import TopicEnds

#: How long to wait for the oldest unread records: they are usually fetched within milliseconds, and only their age is needed.
READ_SECONDS = 3.0


def topic_names(admin: Any, topics: Iterable[str], pattern: str | None) -> list[str]:
    """The names of the source topics. Kafka is asked for a list of topics only if the source is a pattern."""
    return source_topics(topics, pattern, lambda: _known_topics(admin))


def _known_topics(admin: Any) -> Iterable[str]:
    from confluent_kafka import KafkaException

    try:
        known: Mapping[str, Any] = admin.list_topics(timeout=ASK_SECONDS).topics
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka did not list its topics: {e.args[0].str()}") from e
    return known


def source_ends(admin: Any, topics: Iterable[str], pattern: str | None) -> dict[str, TopicEnds | None]:
    """Where each source topic ends; None for a topic that does not exist."""
    return {topic: topic_ends(admin, topic) for topic in topic_names(admin, topics, pattern)}


def waiting_since(kafka: Kafka, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], float]:
    """The time (seconds since the epoch) of the record at each position; a record that is not read in time is left out."""
    from confluent_kafka import Consumer, TopicPartition

    if not positions:
        return {}
    settings = {
        **client_settings(kafka),
        "group.id": "airflow-ckpt-look",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
        # Only one record per partition is needed; the broker sends at least one, whatever its size.
        "fetch.message.max.bytes": 1024,
        "queued.min.messages": 1,
        "auto.offset.reset": "error",
    }
    found: dict[tuple[str, int], float] = {}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, p, offset) for (topic, p), offset in positions.items()])
        deadline = Deadline.after(READ_SECONDS)
        while len(found) < len(positions) and not deadline.passed:
            message = consumer.poll(deadline.left)
            if message is None or message.error():
                continue
            where = (str(message.topic()), int(message.partition() or 0))
            if where not in found:
                found[where] = message.timestamp()[1] / 1000
                consumer.pause([TopicPartition(*where)])
    finally:
        consumer.close()
    return found


def first_unread(offsets: Offsets, ends: Mapping[str, TopicEnds | None]) -> dict[tuple[str, int], int]:
    """The next offset to read in each partition that holds unread records."""
    unread: dict[tuple[str, int], int] = {}
    for topic, end in ends.items():
        for partition, stable in (end.stable if end else {}).items():
            committed = offsets.get(topic, {}).get(str(partition))
            at = max(committed, end.earliest[partition]) if committed is not None and end else None
            if at is not None and at < stable:
                unread[(topic, partition)] = at
    return unread
