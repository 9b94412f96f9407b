"""Where a consumer group stands."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.kafka_errors import PASSING
from ckpt_stream.security import client_settings

#: How long one question may take before it is looked whether Kafka has refused it.
QUESTION_SECONDS = 2.0


def committed_offsets(
    kafka: Mapping[str, Any], group: str, partitions: Mapping[str, Iterable[int]], seconds: float = 30.0
) -> dict[str, dict[str, int]]:
    """What a group has committed; a partition without an offset is left out. Raises KafkaException.

    Asked by a consumer that never joins. The admin client has the same question, but librdkafka 2.16 ends the whole
    process with it when the group's coordinator has moved, as it does whenever a broker restarts.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    wanted = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
    if not wanted:
        return {}
    deadline = time.monotonic() + seconds
    with Consumer({**client_settings(kafka), "group.id": group, "enable.auto.commit": False}) as consumer:
        while True:
            try:
                found = consumer.committed(wanted, timeout=QUESTION_SECONDS)
                break
            except KafkaException as e:
                if (refused := _refusal(consumer)) is not None:
                    raise KafkaException(refused) from e
                if e.args[0].name() not in PASSING or time.monotonic() > deadline:
                    raise
    offsets: dict[str, dict[str, int]] = {}
    for partition in found:
        if partition.error is not None and partition.error.name() != "UNKNOWN_TOPIC_OR_PART":
            raise KafkaException(partition.error)
        if partition.offset >= 0:
            offsets.setdefault(partition.topic, {})[str(partition.partition)] = partition.offset
    return offsets


def _refusal(consumer: Any) -> Any | None:
    """Why the coordinator will never answer, if it said so: the question itself goes on waiting for it."""
    while (event := consumer.poll(0)) is not None:
        error = event.error()
        if error is not None and error.name() not in PASSING:
            return error
    return None
