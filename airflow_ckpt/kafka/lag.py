"""How much input waits: per source partition, in records and in the age of the oldest one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_ckpt.kafka.offsets import ASK_SECONDS, Ends, Kafka, KafkaUnreachable, ends_of
from ckpt_stream.ledger import Offsets
from ckpt_stream.security import client_settings
from ckpt_stream.topics import INTERNAL

#: A partition's oldest waiting record is fetched within milliseconds; nobody waits long for a number in a log line.
LOOK_SECONDS = 3.0


def topic_names(admin: Any, topics: Iterable[str], pattern: str | None) -> list[str]:
    """The source topics, a pattern resolved."""
    if not pattern:
        return sorted(topics)
    from confluent_kafka import KafkaException

    try:
        known = admin.list_topics(timeout=ASK_SECONDS).topics
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka does not list its topics: {e.args[0].str()}") from e
    return sorted(name for name in known if name not in INTERNAL and re.fullmatch(pattern, name))


def source_ends(admin: Any, topics: Iterable[str], pattern: str | None) -> dict[str, Ends | None]:
    """Where each source topic ends; None for one that does not exist."""
    return {topic: ends_of(admin, topic) for topic in topic_names(admin, topics, pattern)}


def waiting_since(kafka: Kafka, positions: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], float]:
    """The time (seconds since the epoch) of the record at each position; what cannot be read in time is left out."""
    from confluent_kafka import Consumer, TopicPartition

    if not positions:
        return {}
    settings = {
        **client_settings(kafka),
        "group.id": "airflow-ckpt-look",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 50,
        # One record per partition is wanted; the broker sends at least one whatever this says.
        "fetch.message.max.bytes": 1024,
        "queued.min.messages": 1,
        "auto.offset.reset": "error",
    }
    found: dict[tuple[str, int], float] = {}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, p, offset) for (topic, p), offset in positions.items()])
        deadline = time.monotonic() + LOOK_SECONDS
        while len(found) < len(positions) and (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is None or message.error():
                continue
            where = (str(message.topic()), int(message.partition() or 0))
            if where not in found:
                found[where] = message.timestamp()[1] / 1000
                consumer.pause([TopicPartition(*where)])
    finally:
        consumer.close()
    return found


def first_unread(offsets: Offsets, ends: Mapping[str, Ends | None]) -> dict[tuple[str, int], int]:
    """Where reading goes on in each partition that holds something unread."""
    unread: dict[tuple[str, int], int] = {}
    for topic, end in ends.items():
        for partition, stable in (end.stable if end else {}).items():
            committed = offsets.get(topic, {}).get(str(partition))
            at = max(committed, end.earliest[partition]) if committed is not None and end else None
            if at is not None and at < stable:
                unread[(topic, partition)] = at
    return unread
