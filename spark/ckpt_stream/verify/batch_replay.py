"""Replays the batches of a stream that keeps state, each from its entry in the checkpoint's offset log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ckpt_stream.errors import BatchNotRun, CannotTell
from ckpt_stream.protocol.storage import ReadableFiles
from ckpt_stream.spark.hadoop_files import CheckpointFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ckpt_stream")


def replay(
    spark: SparkSession, checkpoint: ReadableFiles, stream: DataFrame, last: int, scratch: str, output_mode: str
) -> DataFrame:
    """Replay every batch of the log: Spark runs an entry without a commit again, as after a crash."""
    logged = {batch: checkpoint.read(f"offsets/{batch}") for batch in range(last + 1)}
    if missing := [batch for batch, text in logged.items() if text is None]:
        raise CannotTell(
            "checkpoint_history",
            f"The transform keeps state, and the checkpoint's log no longer has batch {missing[0]}: Spark keeps the last "
            "100 (spark.sql.streaming.minBatchesToRetain).",
            "recompute earlier in the stream's life, set minBatchesToRetain higher, or verify at depth `sink`",
        )
    files = CheckpointFiles(spark, f"{scratch}/checkpoint")
    files.write("sources/0/0", checkpoint.read("sources/0/0") or "")
    for batch, text in logged.items():
        files.write(f"offsets/{batch}", text or "")
        query = (
            stream.writeStream.outputMode(output_mode)
            .option("checkpointLocation", f"{scratch}/checkpoint")
            .foreachBatch(_keep(f"{scratch}/output"))
            .trigger(once=True)  # the log up to this entry only
            .start()
        )
        query.awaitTermination()
        if not files.exists(f"commits/{batch}"):
            raise BatchNotRun(
                f"Batch {batch} was not replayed: Spark ended without committing it. What helps: recompute again."
            )
        log.info("batch %s of %s replayed", batch, last)
    return spark.read.schema("key binary, value binary").parquet(f"{scratch}/output/*")


def _keep(folder: str) -> Callable[[DataFrame, int], None]:
    def keep(rows: DataFrame, batch: int) -> None:
        rows.select("key", "value").write.mode("overwrite").parquet(f"{folder}/{batch}")

    return keep
