"""Where topics begin and end, as readers of either kind see it, and where a consumer group stands."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_ckpt.exceptions import CkptError
from ckpt_stream.consumer_group import committed_offsets
from ckpt_stream.kafka_errors import patiently

ASK_SECONDS = 30.0

#: librdkafka settings, as in Airflow's `kafka` connection.
Kafka = Mapping[str, Any]


class KafkaUnreachable(CkptError):
    """Kafka did not answer, or not with an answer."""


@dataclass(frozen=True)
class Ends:
    """One topic's partitions: the earliest offset, the last stable one, and the high watermark."""

    earliest: Mapping[int, int]
    stable: Mapping[int, int]
    high: Mapping[int, int]

    @property
    def held_back(self) -> list[int]:
        """Partitions in which a transaction is open, or its end is still being written."""
        return [p for p, high in self.high.items() if self.stable[p] < high]


def admin_client(kafka: Kafka) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({**kafka, "reconnect.backoff.ms": 10})


def partitions_of(admin: Any, topic: str) -> list[int] | None:
    """The partitions of a topic; None when there is no such topic."""
    from confluent_kafka import KafkaException

    try:
        metadata = patiently(lambda: admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic], ASK_SECONDS)
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka does not answer a question about {topic}: {e.args[0].str()}") from e
    if metadata.error is not None:
        if metadata.error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return None
        raise KafkaUnreachable(f"Kafka does not show the topic {topic}: {metadata.error.str()}")
    return sorted(metadata.partitions)


def records_in(admin: Any, topic: str) -> int:
    """How many records a topic holds that was made a moment ago, without transactions; waits until it is there."""
    deadline = time.monotonic() + ASK_SECONDS
    while (ends := ends_of(admin, topic)) is None:
        if time.monotonic() > deadline:
            raise KafkaUnreachable(f"The topic {topic} was made, and Kafka does not show it.")
        time.sleep(0.2)
    return sum(ends.high.values())


def ends_of(admin: Any, topic: str) -> Ends | None:
    """The topic's ends; None when there is no such topic."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import OffsetSpec

    spec: Any = OffsetSpec
    partitions = partitions_of(admin, topic)
    if partitions is None:
        return None

    def ask(spec: Any, isolation: Any) -> dict[int, int]:
        return _listed(admin, topic, partitions or [], spec, isolation)

    # The stable end first: a transaction that commits in between must not look like one that is open.
    stable = ask(spec.latest(), IsolationLevel.READ_COMMITTED)
    high = ask(spec.latest(), IsolationLevel.READ_UNCOMMITTED)
    return Ends(ask(spec.earliest(), IsolationLevel.READ_UNCOMMITTED), stable, high)


def _listed(admin: Any, topic: str, partitions: list[int], spec: Any, isolation: Any) -> dict[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    asked = {TopicPartition(topic, p): spec for p in partitions}

    def ask() -> dict[int, int]:
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=ASK_SECONDS)
        return {tp.partition: future.result().offset for tp, future in futures.items()}

    try:
        return patiently(ask, ASK_SECONDS)
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka does not tell the offsets of {topic}: {e.args[0].str()}") from e


def group_offsets(kafka: Kafka, group: str, partitions: Mapping[str, Iterable[int]]) -> dict[str, dict[str, int]]:
    """What a consumer group has committed; empty when it has committed nothing."""
    from confluent_kafka import KafkaException

    try:
        return committed_offsets(kafka, group, partitions, ASK_SECONDS)
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka does not tell the offsets of group {group}: {e.args[0].str()}") from e


def topic_settings(admin: Any, topic: str) -> dict[str, str]:
    """A topic's configuration; empty when this user may not ask."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        entries = admin.describe_configs([resource], request_timeout=ASK_SECONDS)[resource].result()
    except KafkaException:
        return {}
    return {name: str(entry.value) for name, entry in entries.items()}


def broker_settings(admin: Any) -> dict[str, str]:
    """The configuration of one broker; empty when this user may not ask."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    try:
        brokers = admin.list_topics(timeout=ASK_SECONDS).brokers
        resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
        entries = admin.describe_configs([resource], request_timeout=ASK_SECONDS)[resource].result()
    except (KafkaException, ValueError):
        return {}
    return {name: str(entry.value) for name, entry in entries.items()}
