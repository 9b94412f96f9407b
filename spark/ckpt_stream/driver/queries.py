"""Starts the queries of a run, all on one checkpoint: one for each batch over an accepted loss, then the stream's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ckpt_stream.driver.poison_list import records_to_pass
from ckpt_stream.driver.sink import Sink
from ckpt_stream.driver.source_loss import LossBatch, SourceLoss
from ckpt_stream.errors import BatchNotRun, ConfigError
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.storage import ReadableFiles
from ckpt_stream.spark.source import read
from ckpt_stream.spark.transform import Transform, apply_transform, keeps_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Queries:
    """Starts the queries of one run."""

    spark: SparkSession
    config: StreamConfig
    #: The client settings of the stream's Kafka, secrets included.
    kafka: Mapping[str, Any]
    transform: Transform
    files: ReadableFiles
    sink: Sink
    #: The offsets from which the run continues.
    committed: Offsets

    def start_over_loss(self, loss: SourceLoss, step: LossBatch) -> Any:
        """Start a query for one batch; it does not fail on lost records, because a user has accepted their loss."""

        def write_one_batch(rows: DataFrame, batch: int) -> None:
            if batch != step.batch:
                raise BatchNotRun(
                    f"Spark ran batch {batch} instead of batch {step.batch}, which skips an accepted loss. Nothing was written. "
                    "What helps: start again; the next run compares checkpoint and source again."
                )
            self.sink(rows, batch, source_lost=step.as_planned)
            if step.as_planned:
                # More may have been lost while the batch was read. It has no commit-log entry yet, so a later start finds it.
                loss.refuse_unless_accepted(batch)

        rows = self._transformed(read(self.spark, self.config, self.kafka, {}, over_accepted_loss=True))
        return self._writer(rows, write_one_batch).trigger(once=True).start()

    def start_stream(self, start: Mapping[str, str], *, adopts_ledger: bool) -> Any:
        """Start the stream's own query; ``start`` is where a checkpoint without a batch begins."""
        config = self.config
        rows = self._transformed(read(self.spark, config, self.kafka, start))
        if adopts_ledger and keeps_state(rows):
            raise ConfigError(
                'start="ledger" is for stateless streams: this transform keeps state, which was lost with the checkpoint, '
                "and its results would begin at zero. Put the checkpoint back, or start over with a new sink and sink_id."
            )
        writer = self._writer(rows, self.sink)
        if config.drain:
            writer = writer.trigger(availableNow=True)
        elif config.trigger_interval > 0:
            writer = writer.trigger(processingTime=f"{int(config.trigger_interval * 1000)} milliseconds")
        return writer.start()

    def _writer(self, rows: DataFrame, write: Callable[[DataFrame, int], None]) -> Any:
        self.sink.keeps_state = keeps_state(rows)
        return (
            rows.writeStream.queryName(self.config.name)
            .outputMode(self.config.output_mode or "append")
            .option("checkpointLocation", self.config.checkpoint)
            .foreachBatch(write)
        )

    def _transformed(self, events: DataFrame) -> DataFrame:
        """The transform's output, together with the malformed records for the dead-letter topic."""
        from pyspark.sql import functions as F

        consumed = records_to_pass(self.files, self.committed)
        rows, dead_letters = apply_transform(self.transform, events, self.config, consumed)
        for dead in dead_letters:
            flagged = rows if "dead_letter" in rows.columns else rows.withColumn("dead_letter", F.lit(False))
            rows = flagged.unionByName(dead.withColumn("dead_letter", F.lit(True)), allowMissingColumns=True)
        return rows
