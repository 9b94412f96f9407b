"""Prints everything in which Spark shows a stream's source: its plans, its errors, its web pages.

Its source has secrets among its options. The broker is a plaintext one, which does not ask for them.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from ckpt_stream.machine.application_input import find_document
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.spark.kafka_ranges import read_offsets
from ckpt_stream.spark.session import stream_session
from ckpt_stream.spark.source import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGES = ("environment", "sql?details=true&planDescription=true", "jobs", "stages")


def show(title: str, text: object) -> None:
    print(f"=== {title}\n{text}", flush=True)


def show_pages(spark: SparkSession) -> None:
    context = spark.sparkContext
    for page in PAGES:
        url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{page}"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own driver
            show(page, answer.read().decode())


def main() -> None:
    document = json.loads(find_document(sys.argv))
    options = {f"kafka.{name}": value for name, value in document.pop("secrets").items()}
    config = StreamConfig(**document, source_options=options)
    spark = stream_session(config)
    assert spark.conf.get(SECRETS_PROPERTY)
    events = read(spark, config, config.kafka, {"startingOffsets": "earliest"})
    rows = events.select("key", "value")
    batch = read_offsets(spark, config.kafka, {config.source[0]: {0: (0, 1)}}, options=options)
    for mode in ("extended", "formatted", "cost"):
        show(mode, "")
        rows.explain(mode=mode)
        batch.explain(mode=mode)
    show("rows in a batch", batch.count())
    for wrong in (events, batch):
        try:
            wrong.select("no_such_column")
        except AnalysisException as e:
            show("error", e)

    def take(batch: DataFrame, number: int) -> None:
        show(f"batch {number}", sorted(bytes(row.value).decode() for row in batch.collect()))
        batch.explain(extended=True)

    query = rows.writeStream.option("checkpointLocation", config.checkpoint).foreachBatch(take).start()
    query.processAllAvailable()
    show("query", "")
    query.explain(extended=True)
    show("progress", query.lastProgress)
    show_pages(spark)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
