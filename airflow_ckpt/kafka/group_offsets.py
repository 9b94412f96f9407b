"""Reads the committed offsets of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.consumer_group import committed_offsets


def group_offsets(
    kafka: Mapping[str, Any], group: str, partitions: Mapping[str, Iterable[int]]
) -> dict[str, dict[str, int]]:
    """The committed offsets of a consumer group; empty if it has none."""
    from confluent_kafka import KafkaException

    try:
        return committed_offsets(kafka, group, partitions)
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka did not list the offsets of group {group}: {e.args[0].str()}") from e
