"""Where a consumer group stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.consumer_group import committed_offsets


def group_offsets(
    kafka: Mapping[str, Any], group: str, partitions: Mapping[str, Iterable[int]]
) -> dict[str, dict[str, int]]:
    """What a consumer group has committed; empty when it has committed nothing."""
    from confluent_kafka import KafkaException

    try:
        return committed_offsets(kafka, group, partitions)
    except KafkaException as e:
        raise KafkaUnreachable(f"Kafka did not list the offsets of group {group}: {e.args[0].str()}") from e
