"""The offset mirror: committed batches shown as offsets of a consumer group, so that Kafka's own tools see the lag.

These offsets never decide a resume; the checkpoint does. An offset is never committed before its batch is.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from ckpt_stream.ledger import Offsets
from ckpt_stream.security import client_settings

log = logging.getLogger(__name__)

#: Batches written but not yet confirmed by the commit log; Spark has one in flight, so more than a few mean trouble.
MAX_PENDING = 100
COMMIT_SECONDS = 10.0


class OffsetMirror:
    """Holds the end offsets of batches until they are confirmed, then commits them to the group."""

    def __init__(self, kafka: Mapping[str, Any], group: str, mode: str, period: float) -> None:
        self.mode, self.period, self.group = mode, period, group
        self._settings = {**client_settings(kafka), "group.id": group, "enable.auto.commit": False}
        self._pending: deque[tuple[int, Offsets]] = deque(maxlen=MAX_PENDING)
        self._ready: tuple[int, Offsets] | None = None
        self._last_commit = float("-inf")
        self._consumer: Any = None
        self.committed: int | None = None

    def written(self, batch: int, end: Offsets) -> None:
        """The batch is in the sink; its commit-log entry is not there yet."""
        self._pending.append((batch, end))

    def confirmed(self, batch: int) -> None:
        """The batch's commit-log entry is there."""
        ends = None
        while self._pending and self._pending[0][0] <= batch:
            number, end = self._pending.popleft()
            ends = end if number == batch else ends
        if ends is None:
            log.warning("batch %s was confirmed but is not pending; its offsets are not mirrored", batch)
            return
        self._ready = (batch, ends)
        self.tick()

    def restored(self, batch: int, end: Offsets) -> None:
        """The checkpoint's last committed batch at the start of a run: a crash may have come before its mirror."""
        self._ready = (batch, end)
        self.tick()

    def tick(self, *, final: bool = False) -> None:
        """Commit what is ready, if the mode says that it is time."""
        if self._ready is None or self.mode == "disabled":
            return
        if self.mode == "periodic" and not final and time.monotonic() - self._last_commit < self.period:
            return
        self._commit(*self._ready)

    def _commit(self, batch: int, end: Offsets) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        self._last_commit = time.monotonic()
        partitions = [TopicPartition(t, int(p), int(o)) for t, ps in end.items() for p, o in ps.items()]
        try:
            if self._consumer is None:
                self._consumer = Consumer(self._settings)
            self._consumer.commit(offsets=partitions, asynchronous=False)
        except KafkaException as e:
            # Only a view for other tools: the stream goes on, the next batch tries again.
            log.warning("offsets of batch %s are not shown in group %s: %s", batch, self.group, e.args[0].str())
            return
        self._ready, self.committed = None, batch

    def close(self) -> None:
        self.tick(final=True)
        if self._consumer is not None:
            self._consumer.close()
