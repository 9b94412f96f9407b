"""The application's Spark session: it hides Kafka's secrets, and bounds the memory of an executor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark.redaction import redaction_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
#: A batch is in memory several times: in the JVM, in the worker, and as Python objects on the way to Kafka's client.
ARROW_BATCH_BYTES = 32 << 20


def stream_session(config: StreamConfig) -> SparkSession:
    """Start the Spark session of a stream's application."""
    spark = redacting_session(config.name)
    bound_arrow_batches(spark)
    spark.sparkContext.setLogLevel(os.environ.get("CKPT_SPARK_LOG_LEVEL", "WARN"))
    return spark


def redacting_session(name: str) -> SparkSession:
    """Start a Spark session that hides Kafka's secrets, besides everything that the deployment hides."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Before the JVM runs, a SparkConf has none of the settings that were given to spark-submit.
    SparkContext._ensure_initialized()
    builder = SparkSession.builder.appName(name)
    for setting, value in redaction_settings(dict(SparkConf().getAll())).items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


def bound_arrow_batches(spark: SparkSession) -> None:
    """Bound the size of Arrow batches, so that large records do not fill an executor's memory; a user's own limit stays."""
    if not spark.sparkContext.getConf().contains(ARROW_BYTES):
        spark.conf.set(ARROW_BYTES, str(ARROW_BATCH_BYTES))
