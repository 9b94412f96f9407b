"""The stream's source: Spark's Kafka reader with the settings that exactly-once needs, and where it starts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.config import StreamConfig
from ckpt_stream.consumer_group import committed_offsets
from ckpt_stream.errors import UnsafeSetting
from ckpt_stream.kafka_errors import sink_error
from ckpt_stream.ledger import Offsets
from ckpt_stream.redaction import without_fallback
from ckpt_stream.security import java_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EARLIEST, LATEST = -2, -1
#: Fewer, larger polls and fetches: at the Java client's default of 500 records a poll costs more than the records in it,
#: and a reader of one partition waits for every fetch.
FETCH_DEFAULTS = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(4 << 20)}
#: What a user may not set, with what it would break. In lower case: Spark's options are the same in every spelling.
FORBIDDEN = {
    "failondataloss": ("true", "records that retention deleted unread would be passed over in silence"),
    "kafka.isolation.level": ("read_committed", "records of aborted transactions would be read"),
    "asyncprogresstrackingenabled": ("false", "a batch would not replay over the same offsets"),
    "minpartitions": (None, "one source partition would be read by several tasks, and the order of a key be lost"),
    "maxrecordsperpartition": (
        None,
        "one source partition would be read by several tasks, and the order of a key be lost",
    ),
    "kafka.enable.auto.commit": ("false", "offsets would be committed before their batch"),
    "startingoffsets": (None, "the stream's `start` decides it"),
    "startingoffsetsbytimestamp": (None, "the stream's `start` decides it"),
    "startingtimestamp": (None, "the stream's `start` decides it"),
    "subscribe": (None, "the stream's `source` decides it"),
    "subscribepattern": (None, "the stream's `source_pattern` decides it"),
    "assign": (None, "the stream's `source` decides it"),
}
#: Switched the ledger off in tests of earlier versions. A driver that finds it set must not run as if it had no effect.
IGNORE_LEDGER = "CKPT_TEST_IGNORE_LEDGER"


def refuse_unsafe(config: StreamConfig, spark_conf: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raise UnsafeSetting for what would break the guarantee."""
    for name, value in config.source_options.items():
        wanted, risk = FORBIDDEN.get(name.lower(), (value, ""))
        if wanted is None or str(value).lower() != str(wanted).lower():
            raise UnsafeSetting(
                f"source_options sets {name}={value!r}.", f"With it {risk}.", f"remove {name} from source_options."
            )
    if spark_conf.get("spark.speculation", "false").lower() == "true":
        raise UnsafeSetting(
            "spark.speculation is true.",
            "Two copies of a task would fence each other's transactions.",
            "set spark.speculation=false for this stream.",
        )
    if environment.get(IGNORE_LEDGER):
        raise UnsafeSetting(
            f"{IGNORE_LEDGER} is set in the driver's environment.",
            "It asks for a stream that writes a batch again which is in the sink already.",
            f"unset {IGNORE_LEDGER} where the driver is started (Stream(env=...), the worker's or the cluster's environment).",
        )


def reader_options(config: StreamConfig, kafka: Mapping[str, Any], *, over_a_gap: bool = False) -> dict[str, str]:
    """Options of Spark's reader. Only one that is to pass over an accepted loss, in a batch of its own, may lose records."""
    options = dict(FETCH_DEFAULTS)
    options.update({f"kafka.{name}": value for name, value in java_settings(kafka).items()})
    options.update(config.source_options)
    options.update({"kafka.isolation.level": "read_committed", "failOnDataLoss": "false" if over_a_gap else "true"})
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
    over_a_gap: bool = False,
) -> DataFrame:
    options = reader_options(config, kafka, over_a_gap=over_a_gap)
    return without_fallback(spark.readStream.format("kafka").options(**options, **start).load())


def start_options(
    config: StreamConfig, kafka: Mapping[str, Any], partitions: Mapping[str, list[int]], ledger_end: Offsets | None
) -> dict[str, str]:
    """Where a checkpoint without any batch begins. Spark ignores this once there is one: the checkpoint wins."""
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
            raise sink_error(e, f"read the offsets of the consumer group {config.group!r}") from e
    offsets = {
        topic: {str(p): int(known.get(topic, {}).get(str(p), EARLIEST)) for p in numbers}
        for topic, numbers in partitions.items()
    }
    return {"startingOffsets": json.dumps(offsets)}


#: Operators that keep state between batches, as Spark's analysed plan names them.
STATEFUL = re.compile(
    r"\b(Aggregate|Deduplicate\w*|FlatMapGroups\w*|MapGroups\w*WithState|TransformWithState\w*|Join|GlobalLimit|Distinct)\b"
)


def keeps_state(rows: DataFrame) -> bool:
    """Whether the transform keeps state, which is in the checkpoint and nowhere else."""
    plan: Any = rows
    return bool(STATEFUL.search(plan._jdf.queryExecution().analyzed().toString()))
