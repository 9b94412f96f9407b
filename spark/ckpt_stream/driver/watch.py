"""The driver's watch over a running query: notes committed batches, mirrors their offsets, and ends the query on request."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from ckpt_stream.driver import stopping
from ckpt_stream.driver.batch_progress import BatchProgress, WrittenBatch
from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.driver.offset_mirror import OffsetMirror
from ckpt_stream.driver.spark_progress import batch_report, waits_for_input
from ckpt_stream.errors import BatchTimeout, StopBeforeBatch
from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.run_files import record_files, run_record, stop_requests
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.storage import WritableFiles

log = logging.getLogger("ckpt_stream")

#: The pause between two looks while a written batch waits for its commit-log entry, which takes milliseconds.
BUSY_SECONDS = 0.005
#: The longest pause otherwise; it ends as soon as a batch is written.
IDLE_SECONDS = 0.2
#: How often the watch looks for a stop request.
STOP_LOOK_SECONDS = 1.0


class Watch:
    """Watches one query, on the driver's main thread."""

    def __init__(
        self,
        query: Any,
        progress: BatchProgress,
        files: WritableFiles,
        heartbeat: Heartbeat,
        mirror: OffsetMirror,
        config: StreamConfig,
        driver_pids: tuple[int, ...],
    ) -> None:
        self.query, self.progress, self.files = query, progress, files
        self.heartbeat, self.record, self.mirror, self.config = heartbeat, heartbeat.record, mirror, config
        self._driver_pids = driver_pids
        #: Batches that are in the sink and have no commit-log entry yet.
        self._uncommitted: list[WrittenBatch] = []
        self._next_stop_look = 0.0
        self._reached_stop_at = False

    def until_the_end(self) -> str:
        """Watch until the query ends, and return the state in which the run ended; raises the error that ended the query."""
        while self.query.isActive:
            self.progress.changed.wait(BUSY_SECONDS if self._uncommitted else IDLE_SECONDS)
            self._step()
        # The query may have ended after its last batch and before the last look.
        self._take_written()
        self._note_committed(ended=True)
        error = self.query.exception()
        if self.progress.stopping and (error is None or isinstance(self.progress.error, StopBeforeBatch)):
            return run_record.FINISHED if self._reached_stop_at else run_record.STOPPED
        if error is not None:
            raise error
        return run_record.FINISHED

    def _step(self) -> None:
        self.record.watched = record_files.now()
        self._take_written()
        self._note_committed()
        self.mirror.commit_if_due()
        now = time.monotonic()
        self._check_timeout(now)
        if now >= self._next_stop_look:
            self._next_stop_look = now + STOP_LOOK_SECONDS
            self._look_for_stop()
        with self.progress.lock:
            idle = self.progress.current is None and not self.progress.written and not self._uncommitted
        if idle and waits_for_input(self.query.status):
            self.record.idle = self.record.watched
        if self.progress.stopping and idle:
            self.query.stop()

    def _take_written(self) -> None:
        with self.progress.lock:
            self.progress.changed.clear()
            written, self.progress.written = self.progress.written, []
        for batch in written:
            self.mirror.batch_written(batch.batch, batch.end)
            self._uncommitted.append(batch)

    def _note_committed(self, *, ended: bool = False) -> None:
        """Note the batches that have a commit-log entry; a batch without it does not count."""
        if not self._uncommitted:
            return
        newest = self._uncommitted[-1].batch
        progress = self.query._jsq.lastProgress()
        if not ended and (progress is None or progress.batchId() < newest):
            return
        report = json.loads(progress.json()) if progress is not None else {}
        uncommitted, self._uncommitted = self._uncommitted, []
        for written in uncommitted:
            if not self.files.exists(f"commits/{written.batch}"):
                if not ended:  # if the query has ended, the next run finds the batch in doubt
                    self._uncommitted.append(written)
                continue
            crashes.reach(crash_points.AFTER_COMMIT_LOG, batch=written.batch, driver_pids=self._driver_pids)
            self.mirror.batch_committed(written.batch)
            self._note(written, report if report.get("batchId") == written.batch else {})

    def _note(self, written: WrittenBatch, report: dict[str, Any]) -> None:
        batch = {**written.as_record(), **batch_report(report)}
        with self.heartbeat.lock:
            self.record.add_batch(batch)
        log.info(
            "batch %s committed: %s records in, %s out, %s lane(s) skipped",
            written.batch,
            batch["input_rows"],
            batch["records"],
            batch["skipped"],
        )
        self.heartbeat.save()
        if self._reaches_stop_at(written):
            log.info("batch %s reaches the offsets at which the stream stops", written.batch)
            self._reached_stop_at = self.progress.stopping = True

    def _reaches_stop_at(self, written: WrittenBatch) -> bool:
        wanted = self.config.stop_at
        return bool(wanted) and all(
            int(written.end.get(topic, {}).get(p, -1)) >= int(offset)
            for topic, partitions in wanted.items()
            for p, offset in partitions.items()
        )

    def _check_timeout(self, now: float) -> None:
        with self.progress.lock:
            current = self.progress.current
        if current is None or now - current[1] < self.config.batch_timeout:
            return
        error = BatchTimeout(
            f"Batch {current[0]} took longer than batch_timeout ({self.config.batch_timeout:g} s). The next run aborts its "
            "transactions and runs the batch again. What helps: find out what is slow, lower max_offsets_per_batch, or raise "
            "batch_timeout."
        )
        with self.progress.lock:
            self.progress.error = error
        self.query.stop()
        raise error

    def _look_for_stop(self) -> None:
        text = self.files.read(record_files.STOP)
        if text is None or self.progress.stopping:
            return
        if not stop_requests.asks_to_stop(text, self.record):
            return
        if not stopping.take_up(self.files, self.heartbeat, text):
            return
        request = record_files.parse_document(text, "stop request")
        log.info("stop requested by %s: %s", request.get("by"), request.get("reason") or "no reason given")
        self.progress.stopping = True
