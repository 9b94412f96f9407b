"""Reads the committed offsets of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.kafka.client_errors import TRANSIENT
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.protocol.deadline import Deadline

#: How long to wait for one answer before asking Kafka why it does not answer.
QUESTION_SECONDS = 2.0


def committed_offsets(
    kafka: Mapping[str, Any], group: str, partitions: Mapping[str, Iterable[int]], seconds: float = 30.0
) -> dict[str, dict[str, int]]:
    """The committed offsets of a group; a partition without an offset is left out. Raises KafkaException.

    A consumer that never joins the group asks for them. The admin client has the same request, but with it librdkafka 2.16 ends
    the whole process if the group's coordinator has moved, as happens whenever a broker restarts.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    wanted = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
    if not wanted:
        return {}
    with Consumer({**client_settings(kafka), "group.id": group, "enable.auto.commit": False}) as consumer:
        found = _ask(consumer, wanted, Deadline.after(seconds))
    offsets: dict[str, dict[str, int]] = {}
    for partition in found:
        if partition.error is not None and partition.error.name() != "UNKNOWN_TOPIC_OR_PART":
            raise KafkaException(partition.error)
        if partition.offset >= 0:
            offsets.setdefault(partition.topic, {})[str(partition.partition)] = partition.offset
    return offsets


def _ask(consumer: Any, wanted: list[Any], deadline: Deadline) -> Any:
    from confluent_kafka import KafkaException

    while True:
        try:
            return consumer.committed(wanted, timeout=QUESTION_SECONDS)
        except KafkaException as e:
            if (refusal := _refusal(consumer)) is not None:
                raise KafkaException(refusal) from e
            if e.args[0].name() not in TRANSIENT or deadline.passed:
                raise


def _refusal(consumer: Any) -> Any | None:
    """The error with which the coordinator refused the group, if it has done so; `committed` reports only a timeout."""
    while (event := consumer.poll(0)) is not None:
        error = event.error()
        if error is not None and error.name() not in TRANSIENT:
            return error
    return None
