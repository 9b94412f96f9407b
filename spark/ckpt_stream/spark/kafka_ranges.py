"""Reads exact ranges of Kafka topics as a Spark batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.kafka.java_settings import java_settings
from ckpt_stream.spark.source import FETCH_DEFAULTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_offsets(
    spark: SparkSession,
    kafka: Mapping[str, Any],
    ranges: Mapping[str, Mapping[int, tuple[int, int]]],
    *,
    isolation: str = "read_committed",
    headers: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A batch over ``{topic: {partition: (start, end)}}``; without a partition it has no rows."""
    wanted = {topic: partitions for topic, partitions in ranges.items() if partitions}
    settings = {
        **FETCH_DEFAULTS,
        **{f"kafka.{name}": value for name, value in java_settings(kafka).items()},
        **(options or {}),
        "kafka.isolation.level": isolation,
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
    }
    if wanted:
        settings["assign"] = json.dumps({topic: sorted(partitions) for topic, partitions in wanted.items()})
        for number, option in enumerate(("startingOffsets", "endingOffsets")):
            offsets = {t: {str(p): bounds[number] for p, bounds in ps.items()} for t, ps in wanted.items()}
            settings[option] = json.dumps(offsets)
        return spark.read.format("kafka").options(**settings).load()
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
    )
    schema += ", headers array<struct<key:string,value:binary>>" if headers else ""
    return spark.createDataFrame([], schema)
