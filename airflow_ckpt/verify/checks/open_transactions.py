"""Transactions that hold readers back: the last stable offset behind the high watermark for longer than allowed."""

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
    """A finding for each partition whose oldest open transaction is older than a transaction may be."""
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
            f"{topic}-{partition} is held back at offset {offset} ({ends.high[partition] - offset} offset(s) behind its end) "
            f"by a transaction that has been open for {age:.0f} s; the timeout is {timeout_seconds:.0f} s.",
            "readers with read_committed see nothing newer. Its producer's next start ends it; otherwise "
            f"`kafka-transactions.sh --bootstrap-server ... find-hanging --topic {topic}` names it and `abort` ends it",
            topic=topic, partition=partition, offset=offset,
        )  # fmt: skip


def first_record_time(kafka: Mapping[str, Any], topic: str, partition: int, offset: int) -> float | None:
    """When the record at the last stable offset, the first of the open transaction, was written; seconds since 1970."""
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
