"""Writes a batch at least once, with Spark's own Kafka sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.spark.output import select_output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def at_least_once_writer(kafka: Mapping[str, str]) -> Callable[[DataFrame, LaneSpec], tuple[dict[str, Any], ...]]:
    """A writer that uses Spark's own Kafka sink: what a crashed batch has written stays, and its replay writes it again."""
    from pyspark.sql import functions as F

    def write(rows: DataFrame, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        records, settings = select_output(rows), spec.settings
        if "dead_letter" in records.columns:
            topic = F.when(F.col("dead_letter"), F.lit(settings.dead_letter_topic)).otherwise(
                F.lit(settings.sink.topic)
            )
            records = records.withColumn("topic", topic).drop("dead_letter")
        else:
            records = records.withColumn("topic", F.lit(settings.sink.topic))
        writer = records.write.format("kafka").options(**{f"kafka.{name}": value for name, value in kafka.items()})
        if "headers" in records.columns:
            writer = writer.option("includeHeaders", "true")
        writer.save()
        return ()

    return write
