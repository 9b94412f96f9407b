"""An access log that grows while one watches, and an independent count of it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

WINDOW = 5
#: Event time runs faster than the clock, so that windows close while one watches.
SPEED = 10
IPS = 60
SEED = 20260101
#: Far enough after the last line that the watermark passes every window before it.
LAST_GAP_SECONDS = 3600
BEGIN = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


class AccessLog(threading.Thread):
    """Writes lines to a topic for so many seconds, at a steady rate, and remembers what it wrote."""

    def __init__(self, kafka: Mapping[str, Any], topics: tuple[str, ...], seconds: float, rate: int) -> None:
        super().__init__(daemon=True, name="access-log")
        self.kafka, self.topics, self.seconds, self.rate = kafka, topics, seconds, rate
        self.lines = 0
        #: (ip, window start) -> requests: what the stream must find.
        self.expected: Counter[tuple[str, int]] = Counter()
        self.error: BaseException | None = None
        self._end = threading.Event()

    def stop(self) -> None:
        self._end.set()

    def run(self) -> None:
        try:
            self._write()
        except BaseException as e:
            self.error = e

    def _write(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self.kafka, "enable.idempotence": True, "linger.ms": 20})
        dice = random.Random(SEED)  # noqa: S311 - a log of nobody
        begun = time.monotonic()
        while (elapsed := time.monotonic() - begun) < self.seconds and not self._end.is_set():
            due = int(elapsed * self.rate)
            while self.lines < due:
                # A little out of order, never late.
                second = BEGIN + int(self.lines / self.rate * SPEED) - dice.randrange(3)
                ip = f"10.0.{dice.randrange(4)}.{dice.randrange(IPS // 4)}"
                self._send(producer, ip, second)
                self.expected[(ip, second // WINDOW * WINDOW)] += 1
                self.lines += 1
            producer.poll(0.05)
        last = BEGIN + int(self.lines / self.rate * SPEED) + LAST_GAP_SECONDS
        # The last line's own window stays open and is not expected.
        self._send(producer, "10.9.9.9", last)
        self.lines += 1
        if unsent := producer.flush(60):
            raise RuntimeError(f"{unsent} lines were not taken by Kafka")

    def _send(self, producer: Any, ip: str, second: int) -> None:
        moment = datetime.fromtimestamp(second, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        line = f'{ip} - - [{moment}] "GET /index.html HTTP/1.1" 200 {len(ip) * 97}'
        for topic in self.topics:
            producer.produce(topic, key=ip, value=line)
