"""Asks Kafka for the configuration of topics and brokers, which not every user may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_stream.kafka.admin_client import ASK_SECONDS

NOT_ALLOWED = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")


def topic_settings(admin: Any, topic: str) -> dict[str, str]:
    """A topic's configuration; empty when Kafka does not show it to this user."""
    from confluent_kafka import KafkaException

    try:
        return list_topic_settings(admin, [topic])[0] or {}
    except KafkaException:
        return {}


def cleanup_policy(settings: Mapping[str, str]) -> str:
    """A topic's cleanup policy; Kafka's default if this user may not see it."""
    return settings.get("cleanup.policy", "delete")


def list_topic_settings(admin: Any, topics: Sequence[str]) -> list[dict[str, str] | None]:
    """The configuration of each topic; None where this user lacks the right to see it. Raises KafkaException."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers = admin.describe_configs(resources, request_timeout=ASK_SECONDS)
    return [_settings(answers[resource]) for resource in resources]


def broker_settings(admin: Any) -> dict[str, str]:
    """The configuration of one broker; empty when Kafka does not show it to this user."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    try:
        brokers = admin.list_topics(timeout=ASK_SECONDS).brokers
        resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
        return _settings(admin.describe_configs([resource], request_timeout=ASK_SECONDS)[resource]) or {}
    except (KafkaException, ValueError):
        return {}


def _settings(answer: Any) -> dict[str, str] | None:
    from confluent_kafka import KafkaException

    try:
        return {name: str(entry.value) for name, entry in answer.result().items() if entry.value is not None}
    except KafkaException as e:
        if e.args[0].name() in NOT_ALLOWED:
            return None
        raise
