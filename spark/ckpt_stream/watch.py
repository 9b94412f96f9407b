"""The driver's watch over a running query: confirms batches, mirrors offsets, keeps the run record, honours stops."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream import crash, stop_request
from ckpt_stream import run_record as records
from ckpt_stream.config import StreamConfig
from ckpt_stream.errors import BatchTimeout
from ckpt_stream.files import CheckpointFiles
from ckpt_stream.heart import Heart
from ckpt_stream.offset_mirror import OffsetMirror
from ckpt_stream.records import MALFORMED
from ckpt_stream.sink import BatchDone, Progress, StopBeforeBatch

log = logging.getLogger("ckpt_stream")

#: While a batch waits for its commit-log entry, which takes milliseconds; and otherwise.
BUSY_SECONDS, IDLE_SECONDS = 0.005, 0.2
#: How often the stop request is looked for.
STOP_LOOK_SECONDS = 1.0


class Watch:
    """One run's watch, on the driver's main thread."""

    def __init__(
        self,
        query: Any,
        progress: Progress,
        files: CheckpointFiles,
        heart: Heart,
        mirror: OffsetMirror,
        config: StreamConfig,
        driver_pids: tuple[int, ...],
    ) -> None:
        self.query, self.progress, self.files = query, progress, files
        self.heart, self.record, self.mirror, self.config = heart, heart.record, mirror, config
        self._driver_pids = driver_pids
        self._waiting: list[BatchDone] = []
        self._next_stop_look = 0.0
        self._reached_stop_at = False

    def until_the_end(self) -> str:
        """Watch until the query ends. The state in which the run ended well; an exception if it did not."""
        while self.query.isActive:
            self.progress.changed.wait(BUSY_SECONDS if self._waiting else IDLE_SECONDS)
            self._step()
        # The query may have ended between a batch and the look at it.
        self._collect()
        self._confirm(ended=True)
        error = self.query.exception()
        if self.progress.stopping and (error is None or isinstance(self.progress.error, StopBeforeBatch)):
            return records.FINISHED if self._reached_stop_at else records.STOPPED
        if error is not None:
            raise error
        return records.FINISHED

    def _step(self) -> None:
        self.record.watched = records.now()
        self._collect()
        self._confirm()
        self.mirror.tick()
        now = time.monotonic()
        self._check_timeout(now)
        if now >= self._next_stop_look:
            self._next_stop_look = now + STOP_LOOK_SECONDS
            self._look_for_stop()
        with self.progress.lock:
            idle = self.progress.current is None and not self.progress.done and not self._waiting
        if idle and waits_for_input(self.query.status):
            self.record.idle = self.record.watched
        if self.progress.stopping and idle:
            self.query.stop()

    def _collect(self) -> None:
        with self.progress.lock:
            self.progress.changed.clear()
            done, self.progress.done = self.progress.done, []
        for batch in done:
            self.mirror.written(batch.batch, batch.end)
            self._waiting.append(batch)

    def _confirm(self, *, ended: bool = False) -> None:
        """A batch counts when its commit-log entry is there."""
        if not self._waiting:
            return
        newest = self._waiting[-1].batch
        progress = self.query._jsq.lastProgress()
        if not ended and (progress is None or progress.batchId() < newest):
            return
        seen = json.loads(progress.json()) if progress is not None else {}
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            if not self.files.exists(f"commits/{done.batch}"):
                if ended:
                    continue  # the run ended first; the next one finds the batch in doubt
                self._waiting.append(done)
                continue
            crash.reach(crash.AFTER_COMMIT_LOG, batch=done.batch, driver_pids=self._driver_pids)
            self.mirror.confirmed(done.batch)
            self._note(done, seen if seen.get("batchId") == done.batch else {})

    def _note(self, done: BatchDone, seen: dict[str, Any]) -> None:
        batch = done.as_record()
        batch["input_rows"] = seen.get("numInputRows")
        batch["durations_ms"] = seen.get("durationMs", {})
        batch["lag"] = lag_of(seen.get("sources", ()))
        observed = seen.get("observedMetrics", {})
        batch["malformed"] = sum(int(v.get("malformed") or 0) for k, v in observed.items() if k.startswith(MALFORMED))
        with self.heart.lock:
            self.record.add_batch(batch)
        log.info(
            "batch %s committed: %s records in, %s out, %s lane(s) skipped",
            done.batch,
            batch["input_rows"],
            batch["records"],
            batch["skipped"],
        )
        self.heart.save()
        if self._is_at_stop(done):
            log.info("batch %s reaches the offsets to stop at", done.batch)
            self._reached_stop_at = self.progress.stopping = True

    def _is_at_stop(self, done: BatchDone) -> bool:
        wanted = self.config.stop_at
        return bool(wanted) and all(
            int(done.end.get(topic, {}).get(p, -1)) >= int(offset)
            for topic, partitions in wanted.items()
            for p, offset in partitions.items()
        )

    def _check_timeout(self, now: float) -> None:
        with self.progress.lock:
            current = self.progress.current
        if current is None or now - current[1] < self.config.batch_timeout:
            return
        error = BatchTimeout(
            f"Batch {current[0]} took longer than batch_timeout ({self.config.batch_timeout:g} s). Its transactions are "
            "aborted by the next run, which does it again: find out what is slow, lower max_offsets_per_batch, or raise "
            "batch_timeout."
        )
        with self.progress.lock:
            self.progress.error = error
        self.query.stop()
        raise error

    def _look_for_stop(self) -> None:
        text = self.files.read(records.STOP)
        if text is None or self.progress.stopping:
            return
        if not records.is_stop_for(text, self.record):
            return
        if not stop_request.take_up(self.files, self.heart, text):
            return
        request = records.parse(text, "stop request")
        log.info("stop requested by %s: %s", request.get("by"), request.get("reason") or "no reason given")
        self.progress.stopping = True


def waits_for_input(status: Mapping[str, Any]) -> bool:
    """Whether Spark has looked for input and found none; while it looks, or before its first look, that is not known."""
    return str(status["message"]).startswith("Waiting for") and not status["isDataAvailable"]


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """How many offsets were left unread when a batch was planned, as Spark's progress tells it; None if it does not."""
    left = 0
    for source in sources:
        latest, end = source.get("latestOffset"), source.get("endOffset")
        if not isinstance(latest, dict) or not isinstance(end, dict):
            return None
        for topic, partitions in latest.items():
            read = end.get(topic, {})
            left += sum(max(0, int(offset) - int(read.get(p, offset))) for p, offset in partitions.items())
    return left
