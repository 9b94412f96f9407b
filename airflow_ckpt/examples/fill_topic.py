"""Fills a topic with records, for examples and drills."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from airflow_ckpt.exceptions import NotDelivered
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.admin_client import ASK_SECONDS
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.protocol.deadline import Deadline

SEND_SECONDS = 60.0
POLL_SECONDS = 0.2


def fill(admin: Any, producer: Any, topic: str, records: Iterable[tuple[str | None, str]]) -> None:
    """Send the (key, value) pairs that the topic does not hold yet: a retry continues where the first attempt ended."""
    errors: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    for key, value in islice(records, records_in(admin, topic), None):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                # The client's queue is full: wait for Kafka.
                producer.poll(0.1)
        producer.poll(0)
    unsent = producer.flush(SEND_SECONDS)
    if errors or unsent:
        reason = f", the first for: {errors[0]}" if errors else ""
        raise NotDelivered(
            f"{topic}: {len(errors) + unsent} records were not accepted by Kafka{reason}. Run the task again."
        )


def records_in(admin: Any, topic: str) -> int:
    """How many records a topic without transactions holds; waits until Kafka lists a topic that was just created."""
    ends = Deadline.after(ASK_SECONDS).wait_for(lambda: topic_ends(admin, topic), POLL_SECONDS)
    if ends is None:
        raise KafkaUnreachable(f"The topic {topic} was created, but Kafka does not list it after {ASK_SECONDS:.0f} s.")
    return sum(ends.high.values())
