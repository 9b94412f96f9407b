"""Asks Kafka where topics begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.admin_client import ASK_SECONDS, NO_SUCH_TOPIC, retry_transient
from ckpt_stream.protocol.topic_ends import TopicEnds

#: The first offset, the end for readers of committed records, the end for readers of all records.
Which = Literal["earliest", "stable", "high"]


def partitions_of(admin: Any, topic: str) -> list[int] | None:
    """The partitions of a topic; None when there is no such topic."""
    from confluent_kafka import KafkaException

    try:
        metadata = retry_transient(lambda: admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic])
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka did not describe the topic {topic}: {e.args[0].str()}") from e
    if metadata.error is not None:
        if metadata.error.name() in NO_SUCH_TOPIC:
            return None
        raise KafkaUnreachable(f"Kafka did not describe the topic {topic}: {metadata.error.str()}")
    return sorted(metadata.partitions)


def topic_ends(admin: Any, topic: str) -> TopicEnds | None:
    """The ends of all partitions of a topic; None when there is no such topic."""
    from confluent_kafka import KafkaException

    partitions = partitions_of(admin, topic)
    if partitions is None:
        return None

    def ask(which: Which) -> dict[int, int]:
        return retry_transient(lambda: list_offsets(admin, {topic: partitions}, which)).get(topic, {})

    try:
        # The stable end first: otherwise a transaction that commits in between would look open.
        stable = ask("stable")
        high = ask("high")
        return TopicEnds(ask("earliest"), stable, high)
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka did not list the offsets of {topic}: {e.args[0].str()}") from e


def list_offsets(admin: Any, partitions: Mapping[str, Iterable[int]], which: Which) -> dict[str, dict[int, int]]:
    """One request about partitions of any number of topics. Raises KafkaException."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    known: Any = OffsetSpec
    offset = known.earliest() if which == "earliest" else known.latest()
    isolation = IsolationLevel.READ_COMMITTED if which == "stable" else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(topic, number): offset for topic, numbers in partitions.items() for number in numbers}
    found: dict[str, dict[int, int]] = {}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=ASK_SECONDS) if asked else {}
    for partition, answer in answers.items():
        found.setdefault(partition.topic, {})[partition.partition] = answer.result().offset
    return found
