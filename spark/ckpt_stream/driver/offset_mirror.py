"""The offset mirror: commits the offsets of committed batches to a consumer group, so that Kafka's own tools show the lag.

These offsets never decide where a run continues; the checkpoint does. An offset is never committed before its batch is.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.protocol.offsets import Offsets

log = logging.getLogger(__name__)

#: Batches written and not yet committed. Spark has one in flight, so there are never more than a few.
MAX_PENDING = 100
#: How long one commit may block the driver's watch. librdkafka uses the session timeout for it, which is 45 s by default.
COMMIT_SECONDS = 6.0
#: The pause after a failure, when no new batch comes.
RETRY_SECONDS = 30.0
#: After a failed commit the pause is so many times as long as the commit took; otherwise stop requests would be obeyed late.
PAUSE_FACTOR = 3


class OffsetMirror:
    """Holds the end offsets of batches until the batches are committed, then commits the offsets to the group."""

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
        #: The next attempt is due at these times (monotonic): without a new batch, and with one.
        self._due = self._due_with_batch = float("-inf")
        self._consumer: Any = None
        self.committed: int | None = None

    def batch_written(self, batch: int, end: Offsets) -> None:
        """Remember the end of a batch that is in the sink and has no commit-log entry yet."""
        self._pending.append((batch, end))

    def batch_committed(self, batch: int) -> None:
        """Commit the offsets of a batch that has its commit-log entry, if they are due."""
        ends = dict(self._pending).get(batch)
        if ends is None:
            log.warning("batch %s was committed but is not pending; its offsets are not mirrored", batch)
            return
        while self._pending and self._pending[0][0] <= batch:
            self._pending.popleft()
        self._ready = (batch, ends)
        self._due = min(self._due, self._due_with_batch)
        self.commit_if_due()

    def begin_at(self, batch: int, end: Offsets) -> None:
        """Commit the offsets of the checkpoint's last committed batch: the previous run may have ended before it did so."""
        self._ready = (batch, end)
        self.commit_if_due()

    def commit_if_due(self, *, final: bool = False) -> None:
        """Commit the offsets of committed batches if the mode requires it now, and always at the end of the run."""
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
        # These offsets are only shown by other tools: the stream continues, and the next batch tries again.
        log.warning("the offsets of batch %s could not be committed to group %s: %s", batch, self.group, error)
        self._due_with_batch = max(self._due, now + PAUSE_FACTOR * (now - started))
        self._due = max(self._due, now + RETRY_SECONDS)

    def _commit(self, end: Offsets) -> str | None:
        """Commit to the group; returns the error, if there is one."""
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
        """Commit the offsets of committed batches, and close the client."""
        self.commit_if_due(final=True)
        if self._consumer is not None:
            self._consumer.close()
