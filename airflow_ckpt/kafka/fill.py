"""Fills a topic with records, for examples and drills."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.kafka.offsets import records_in

SEND_SECONDS = 60.0


def fill(admin: Any, producer: Any, topic: str, records: Iterable[tuple[str | None, str]]) -> None:
    """Send the (key, value) pairs that the topic does not hold yet: a second try goes on where the first ended."""
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
        raise CkptError(f"{topic}: {len(errors) + unsent} records were not taken by Kafka{reason}. Run the task again.")
