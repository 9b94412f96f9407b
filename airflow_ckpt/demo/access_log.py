"""Writes an access log to a topic while the demo runs, and counts it independently of the stream."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.exceptions import StackError
from ckpt_stream.protocol.deadline import Deadline

WINDOW = 5
#: Event time passes faster than the clock, so that windows close during the demo.
SPEED = 10
IPS = 60
SEED = 20260101
#: So far after the last line that the watermark passes every window before it.
LAST_GAP_SECONDS = 3600
FLUSH_SECONDS = 60
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


class AccessLog(threading.Thread):
    """Writes lines to topics for so many seconds, at a steady rate, and counts them."""

    def __init__(self, kafka: Mapping[str, Any], topics: tuple[str, ...], seconds: float, rate: int) -> None:
        super().__init__(daemon=True, name="access-log")
        self.kafka, self.topics, self.seconds, self.rate = kafka, topics, seconds, rate
        self.lines = 0
        #: (ip, window start) -> number of requests that the stream must find.
        self.expected: Counter[tuple[str, int]] = Counter()
        self.error: BaseException | None = None
        self._end = threading.Event()

    def stop(self) -> None:
        self._end.set()

    def refuse_error(self) -> None:
        """Raise StackError if lines could not be written: a log that ends early must not be counted."""
        if self.error:
            raise StackError(
                f"the access log could not be written: {self.error}", kind="log_not_written"
            ) from self.error

    def run(self) -> None:
        try:
            self._write()
        except BaseException as e:
            self.error = e

    def _write(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self.kafka, "enable.idempotence": True, "linger.ms": 20})
        random_numbers = random.Random(SEED)  # noqa: S311 - an invented log
        deadline = Deadline.after(self.seconds)
        while (left := deadline.left) and not self._end.is_set():
            due = int((self.seconds - left) * self.rate)
            while self.lines < due:
                # A little out of order, never late.
                second = BEGIN + int(self.lines / self.rate * SPEED) - random_numbers.randrange(3)
                ip = f"10.0.{random_numbers.randrange(4)}.{random_numbers.randrange(IPS // 4)}"
                self._send(producer, ip, second)
                self.expected[(ip, second // WINDOW * WINDOW)] += 1
                self.lines += 1
            producer.poll(0.05)
        last = BEGIN + int(self.lines / self.rate * SPEED) + LAST_GAP_SECONDS
        # The last line's own window stays open and is not expected.
        self._send(producer, "10.9.9.9", last)
        self.lines += 1
        if unsent := producer.flush(FLUSH_SECONDS):
            raise StackError(
                f"Kafka did not accept {unsent} lines of the access log within {FLUSH_SECONDS} s, so the demo cannot count them: "
                "`airflow-ckpt local status` shows whether its brokers run; then run the demo again.",
                kind="not_accepted",
            )

    def _send(self, producer: Any, ip: str, second: int) -> None:
        moment = datetime.fromtimestamp(second, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        line = f'{ip} - - [{moment}] "GET /index.html HTTP/1.1" 200 {len(ip) * 97}'
        for topic in self.topics:
            producer.produce(topic, key=ip, value=line)
