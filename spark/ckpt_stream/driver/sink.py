"""The sink: the function given to Spark's ``foreachBatch``, which writes one batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckpt_stream.driver.at_least_once import at_least_once_writer
from ckpt_stream.driver.batch_progress import BatchProgress, WrittenBatch
from ckpt_stream.driver.exactly_once import ExactlyOnceWriter
from ckpt_stream.driver.lane_spec import LaneSettings, LaneSpec
from ckpt_stream.driver.sink_topic import SinkTopic
from ckpt_stream.driver.start_of_run import Start
from ckpt_stream.driver.unfinished_batch import UnfinishedBatch
from ckpt_stream.errors import PlanMissing, QueryUnknown, StopBeforeBatch
from ckpt_stream.kafka.java_settings import java_settings
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.checkpoint.batch_offsets import start_offsets
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest, parse_metadata, parse_offsets
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite, SinkIdentity
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.record_files import now
from ckpt_stream.protocol.run_files.replays import note_replay
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.stream_settings import AT_LEAST_ONCE
from ckpt_stream.spark.hadoop_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


class Sink:
    """Writes each batch that Spark runs, and reports it to the driver's watch through `progress`."""

    def __init__(
        self,
        files: CheckpointFiles,
        settings: LaneSettings,
        write: Callable[[DataFrame, LaneSpec], tuple[dict[str, Any], ...]],
        min_pause: float,
        sink_ends: Callable[[], Offsets],
        unfinished: UnfinishedBatch | None = None,
    ) -> None:
        self.progress = BatchProgress()
        self._files, self._settings, self._write = files, settings, write
        self._min_pause, self._sink_ends = min_pause, sink_ends
        self._unfinished = unfinished
        #: The transform keeps state. Then a replay that differs would leave a state that does not match the records in the sink.
        self.keeps_state = False
        #: The previous batch, and where it ended in the source.
        self._previous_end: tuple[int, Offsets] | None = None
        self._last_ended = float("-inf")

    def __call__(self, rows: DataFrame, batch: int, *, source_lost: bool = False) -> None:
        progress = self.progress
        try:
            self._pause(batch)
            with progress.lock:
                progress.current = (batch, time.monotonic())
            written = self._write_batch(rows, batch, source_lost=source_lost)
        except BaseException as e:
            with progress.lock:
                progress.error = e
            raise
        with progress.lock:
            progress.current = None
            progress.written.append(written)
        self._last_ended = time.monotonic()
        progress.changed.set()

    def _pause(self, batch: int) -> None:
        """Wait for the minimum pause after the last batch; raises StopBeforeBatch once a stop was requested."""
        while not self.progress.stopping and (wait := self._last_ended + self._min_pause - time.monotonic()) > 0:
            time.sleep(min(wait, 0.1))
        if self.progress.stopping:
            raise StopBeforeBatch(f"the next run runs batch {batch}")

    def _write_batch(self, rows: DataFrame, batch: int, *, source_lost: bool = False) -> WrittenBatch:
        started = now()
        text = self._files.read(f"offsets/{batch}")
        if text is None:
            raise PlanMissing(
                f"offsets/{batch} is not in the checkpoint although Spark runs the batch. Nothing of the batch was written. "
                "What helps: find out which user or program deletes files of the checkpoint, then start again."
            )
        start, end = self._start_offsets(batch), parse_offsets(text, f"offsets/{batch}").kafka
        where = {"batch": batch, "driver_pids": self._settings.driver_pids}
        crashes.reach(crash_points.OFFSETS_LOGGED, **where)
        sink_start = self._sink_ends()
        settings = self._settings
        spec = LaneSpec(
            settings,
            BatchToWrite(settings.sink, self._query_id(rows, batch), batch, input_digest(text), settings.adopted),
            start=start,
            end=end,
            offsets=text,
            sink_start=sink_start,
            source_lost=source_lost,
            # With a single lane, the whole batch always comes from one replay.
            may_differ=settings.sink.lanes == 1 and not self.keeps_state,
        )
        lanes = self._write_lanes(rows, spec)
        crashes.reach(crash_points.AFTER_LAST_LANE, **where)
        self._previous_end = (batch, end)
        written = WrittenBatch(batch, started, now(), start, end, lanes)
        if written.differs:
            self._note_replay(written, spec)
        return written

    def _unfinished_of(self, batch: int) -> UnfinishedBatch | None:
        return self._unfinished if self._unfinished is not None and self._unfinished.batch == batch else None

    def _write_lanes(self, rows: DataFrame, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        lanes, unfinished = spec.settings.sink.lanes, self._unfinished_of(spec.to_write.batch)
        if unfinished is not None:
            nothing_left_to_write = unfinished.is_one_attempt(lanes) and not self.keeps_state
            spec = replace(
                spec, ledger_format=unfinished.ledger_format, may_differ=nothing_left_to_write or unfinished.accepted
            )
            if unfinished.is_partly_in_sink(lanes):
                return self._write_missing_lanes(rows, spec, unfinished)
        return self._write(rows, spec)

    def _write_missing_lanes(
        self, rows: DataFrame, spec: LaneSpec, unfinished: UnfinishedBatch
    ) -> tuple[dict[str, Any], ...]:
        """Compare the lanes in the sink with a replay, then write the missing lanes from the same replay."""
        # Kept by Spark, so that the rows written are the rows compared; if an executor loses them, the run fails.
        fixed = rows.localCheckpoint()
        self._write(fixed, replace(spec, only_compare=True))
        return self._write(fixed, replace(spec, attempt="" if unfinished.accepted else unfinished.attempt or ""))

    def _note_replay(self, written: WrittenBatch, spec: LaneSpec) -> None:
        """Note, for a verification, that the sink holds an earlier attempt of the batch than its last replay."""
        unfinished = self._unfinished_of(written.batch)
        accepted = unfinished is not None and unfinished.accepted
        log.warning(
            "batch %s does not replay identically: the sink holds lanes %s of an earlier attempt. %s Make the "
            "transform a function of its input alone.",
            written.batch,
            written.differs,
            "A user has accepted that records of it may be lost or doubled."
            if accepted
            else "That attempt is complete, so nothing is lost or doubled.",
        )
        query_id, run_id = spec.to_write.query_id, spec.settings.run_id
        note_replay(self._files, query_id, written.batch, written.differs, run=run_id, accepted=accepted)

    def _query_id(self, rows: DataFrame, batch: int) -> str:
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Spark gives the id only if Python threads are pinned to threads of the JVM (PYSPARK_PIN_THREAD, the default).
        if not query_id and (metadata := self._files.read("metadata")):
            query_id = parse_metadata(metadata)
        if not query_id:
            raise QueryUnknown(
                f"Neither Spark nor the checkpoint has the id of the query that runs batch {batch}. Nothing of it was written. "
                "What helps: unset PYSPARK_PIN_THREAD in the driver's environment, or restore the checkpoint's file `metadata`."
            )
        return query_id

    def _start_offsets(self, batch: int) -> Offsets:
        if self._previous_end is not None and self._previous_end[0] == batch - 1:
            return self._previous_end[1]
        return start_offsets(self._files, batch)


def new_sink(
    files: CheckpointFiles,
    kafka: Mapping[str, Any],
    config: StreamConfig,
    record: RunRecord,
    identity: SinkIdentity,
    topic: SinkTopic,
    start: Start,
    *,
    ignore_ledger: bool = False,
) -> Sink:
    """The sink of a run that begins like this."""
    producer_settings = client_settings(kafka)
    if topic.max_message_bytes:
        producer_settings.setdefault("message.max.bytes", topic.max_message_bytes)
    settings = LaneSettings(
        sink=identity,
        adopted=start.adopted,
        kafka=producer_settings,
        run_id=record.run,
        application=config.application_version,
        transaction_timeout_ms=int(config.transaction_timeout * 1000),
        history=config.ledger_history,
        dead_letter_topic=config.dead_letter_topic,
        audit=config.audit == "record",
        driver_pids=driver_pids(record),
        ignore_ledger=ignore_ledger,
    )
    exactly_once = config.guarantee != AT_LEAST_ONCE
    write = ExactlyOnceWriter() if exactly_once else at_least_once_writer(java_settings(kafka))
    return Sink(files, settings, write, config.min_pause, topic.ends, start.unfinished)


def driver_pids(record: RunRecord) -> tuple[int, ...]:
    """The processes of a run's driver: its JVM and its Python process."""
    return int(record.driver["jvm_pid"]), int(record.driver["pid"])
