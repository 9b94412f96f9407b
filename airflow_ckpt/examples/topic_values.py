"""Reads a whole topic, with or without aborted records; for small topics, in examples and checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import topic_ends


def read_values(kafka: Mapping[str, Any], topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values of a topic up to now: of committed records only or, with `read_uncommitted`, also of aborted records."""
    from confluent_kafka import Consumer, TopicPartition

    ends = topic_ends(admin_client(kafka), topic)
    until = {} if ends is None else ends.stable if isolation == "read_committed" else ends.high
    wanted = {p: end for p, end in until.items() if ends is not None and end > ends.earliest[p]}
    if ends is None or not wanted:
        return []
    values: list[bytes] = []
    consumer = Consumer(
        {
            **kafka,
            "group.id": "airflow-ckpt-read",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            # The consumer's position moves past control records only when it polls for the records after them.
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = [TopicPartition(topic, p, ends.earliest[p]) for p in wanted]
        consumer.assign(partitions)
        while any(tp.offset < wanted[tp.partition] for tp in consumer.position(partitions)):
            for message in consumer.consume(1000, timeout=1.0):
                if not message.error() and int(message.offset() or 0) < wanted[int(message.partition() or 0)]:
                    values.append(message.value() or b"")
    finally:
        consumer.close()
    return values
