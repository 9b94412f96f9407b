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
#: How long one commit may keep the driver's watch waiting; librdkafka takes the session timeout for it, 45 s by default.
COMMIT_SECONDS = 6.0
#: After a failure, when no new batch comes.
RETRY_SECONDS = 30.0
#: After a failure that took long, so many times as long is waited, or heartbeats and stop requests would be late.
PAUSE_FACTOR = 3


class OffsetMirror:
    """Holds the end offsets of batches until they are confirmed, then commits them to the group."""

    def __init__(self, kafka: Mapping[str, Any], group: str, mode: str, period: float) -> None:
        self.mode, self.period, self.group = mode, period, group
        milliseconds = int(COMMIT_SECONDS * 1000)
        self._settings = {
            **client_settings(kafka),
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": milliseconds,
            "socket.timeout.ms": milliseconds,
        }
        self._pending: deque[tuple[int, Offsets]] = deque(maxlen=MAX_PENDING)
        self._ready: tuple[int, Offsets] | None = None
        #: Not before these times (monotonic) is the next attempt due: at any tick, and with a new batch.
        self._due = self._due_with_batch = float("-inf")
        self._consumer: Any = None
        self.committed: int | None = None

    def written(self, batch: int, end: Offsets) -> None:
        """The batch is in the sink; its commit-log entry is not there yet."""
        self._pending.append((batch, end))

    def confirmed(self, batch: int) -> None:
        """The batch's commit-log entry is there."""
        ends = dict(self._pending).get(batch)
        if ends is None:
            log.warning("batch %s was confirmed but is not pending; its offsets are not mirrored", batch)
            return
        while self._pending and self._pending[0][0] <= batch:
            self._pending.popleft()
        self._ready = (batch, ends)
        self._due = min(self._due, self._due_with_batch)
        self.tick()

    def restored(self, batch: int, end: Offsets) -> None:
        """The checkpoint's last committed batch at the start of a run: a crash may have come before its mirror."""
        self._ready = (batch, end)
        self.tick()

    def tick(self, *, final: bool = False) -> None:
        """Commit what is ready, if the mode says that it is time."""
        if self._ready is None or self.mode == "disabled" or (time.monotonic() < self._due and not final):
            return
        batch, end = self._ready
        started = time.monotonic()
        error = self._commit(end)
        now = time.monotonic()
        self._due = self._due_with_batch = started + self.period if self.mode == "periodic" else now
        if error is None:
            self._ready, self.committed = None, batch
            return
        # Only a view for other tools: the stream goes on, the next batch tries again.
        log.warning("offsets of batch %s are not shown in group %s: %s", batch, self.group, error)
        self._due_with_batch = max(self._due, now + PAUSE_FACTOR * (now - started))
        self._due = max(self._due, now + RETRY_SECONDS)

    def _commit(self, end: Offsets) -> str | None:
        """Commit to the group; what went wrong, if something did."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        partitions = [TopicPartition(t, int(p), int(o)) for t, ps in end.items() for p, o in ps.items()]
        if not partitions:
            return None
        try:
            if self._consumer is None:
                self._consumer = Consumer(self._settings)
            committed = self._consumer.commit(offsets=partitions, asynchronous=False)
        except KafkaException as e:
            return str(e.args[0].str())
        failed = [f"{p.topic}-{p.partition}: {p.error.str()}" for p in committed or () if p.error is not None]
        return ", ".join(failed) or None

    def close(self) -> None:
        self.tick(final=True)
        if self._consumer is not None:
            self._consumer.close()
