"""Finds transactions that are open for too long, so that the last stable offset stays behind the high watermark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_ckpt.verify.scan.sink_scan import reader_settings
from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.topic_ends import TopicEnds

LOOK_SECONDS = 10.0


def check_open(kafka: Mapping[str, Any], topic: str, ends: TopicEnds, timeout_seconds: float) -> Iterator[Finding]:
    """A finding for each partition whose oldest open transaction is older than the transaction timeout."""
    for partition in ends.held_back:
        began = first_record_time(kafka, topic, partition, ends.stable[partition])
        if began is None:
            continue
        age = time.time() - began
        if age <= timeout_seconds:
            continue
        offset = ends.stable[partition]
        yield Finding(
            "open_transaction",
            f"Readers of {topic}-{partition} see nothing from offset {offset} on, which hides {ends.high[partition] - offset} "
            f"offset(s): a transaction has been open for {age:.0f} s; the timeout is {timeout_seconds:.0f} s.",
            "the next start of its producer ends the transaction; otherwise "
            f"`kafka-transactions.sh --bootstrap-server ... find-hanging --topic {topic}` names it and `abort` ends it",
            topic=topic, partition=partition, offset=offset,
        )  # fmt: skip


def first_record_time(kafka: Mapping[str, Any], topic: str, partition: int, offset: int) -> float | None:
    """When the first record of the open transaction, at the last stable offset, was written; seconds since 1970."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(reader_settings(kafka, isolation="read_uncommitted"))
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        deadline = Deadline.after(LOOK_SECONDS)
        while not deadline.passed:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                return float(message.timestamp()[1]) / 1000
    finally:
        consumer.close()
    return None
