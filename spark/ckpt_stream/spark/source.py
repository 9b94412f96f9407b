"""The stream's source: Spark's Kafka reader with the settings that exactly-once needs, and where it starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.kafka.client_errors import to_sink_error
from ckpt_stream.kafka.consumer_group import committed_offsets
from ckpt_stream.kafka.java_settings import java_settings
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark.redaction import without_fallback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark's number for the first offset of a partition.
EARLIEST = -2
#: Fewer, larger polls and fetches than the Java client's defaults: a poll of 500 records costs more than the records in it,
#: and a task that reads one partition waits for every fetch.
FETCH_DEFAULTS = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(4 << 20)}


def reader_options(
    config: StreamConfig, kafka: Mapping[str, Any], *, over_accepted_loss: bool = False
) -> dict[str, str]:
    """The options of Spark's reader.

    It fails on lost records, except in a batch that skips an accepted loss.
    """
    options = dict(FETCH_DEFAULTS)
    options.update({f"kafka.{name}": value for name, value in java_settings(kafka).items()})
    options.update(config.source_options)
    options.update(
        {"kafka.isolation.level": "read_committed", "failOnDataLoss": "false" if over_accepted_loss else "true"}
    )
    if config.source_pattern:
        options["subscribePattern"] = config.source_pattern
    else:
        options["subscribe"] = ",".join(config.source)
    if config.max_offsets_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(config.max_offsets_per_batch)
    if config.include_headers:
        options["includeHeaders"] = "true"
    return options


def read(
    spark: SparkSession,
    config: StreamConfig,
    kafka: Mapping[str, Any],
    start: Mapping[str, str],
    *,
    over_accepted_loss: bool = False,
) -> DataFrame:
    """Read the stream's source with Spark; ``start`` is where a checkpoint without a batch begins."""
    options = reader_options(config, kafka, over_accepted_loss=over_accepted_loss)
    return without_fallback(spark.readStream.format("kafka").options(**options, **start).load())


def start_options(
    config: StreamConfig, kafka: Mapping[str, Any], partitions: Mapping[str, list[int]], ledger_end: Offsets | None
) -> dict[str, str]:
    """The reader's options for where a checkpoint without a batch begins.

    Spark ignores them if the checkpoint has a batch, and then continues from the checkpoint.
    """
    from confluent_kafka import KafkaException

    if config.start in ("earliest", "latest"):
        return {"startingOffsets": config.start}
    if config.start == "timestamp":
        return {
            "startingTimestamp": str(config.start_timestamp_ms),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    if config.start == "explicit":
        known: Offsets = config.start_offsets
    elif config.start == "ledger":
        known = ledger_end or {}
    else:
        try:
            known = committed_offsets(kafka, config.group, partitions)
        except KafkaException as e:
            raise to_sink_error(e, f"read the offsets of the consumer group {config.group!r}") from e
    offsets = {
        topic: {str(p): int(known.get(topic, {}).get(str(p), EARLIEST)) for p in numbers}
        for topic, numbers in partitions.items()
    }
    return {"startingOffsets": json.dumps(offsets)}
