"""This sink against Spark's own at-least-once sink, in one run, on the same data and broker.

(a) throughput: many records, AvailableNow, one batch; (b) time per small batch. Spark's own sink is
``writeStream.format("kafka")``, with the same source options and the same cores.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_ckpt.local.announcements import Announce
from airflow_ckpt.local.kafka.cluster import KafkaCluster
from bench.broker_and_spark import fill, new_topic
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.spark.source import read

PARTITIONS = 4


def copy(events: Any) -> Any:
    return events.select("key", "value")


def drain_to_this_sink(
    spark: Any, cluster: KafkaCluster, source: str, folder: Path, **settings: Any
) -> tuple[float, Any]:
    """Copy the source once through this sink: the seconds it took, and the run record."""
    from ckpt_stream.driver.driver import Driver

    sink = new_topic(cluster, "ours", PARTITIONS)
    config = StreamConfig(
        name=sink, checkpoint=str(folder / sink), source=(source,), sink=sink, kafka=cluster.client_config(),
        start="earliest", drain=True, **settings,
    )  # fmt: skip
    driver = Driver(spark, config, copy)
    begun = time.perf_counter()
    code, line = driver.run()
    seconds = time.perf_counter() - begun
    if code != 0:
        raise RuntimeError(line)
    return seconds, driver.record


def drain_to_sparks_sink(
    spark: Any, cluster: KafkaCluster, source: str, folder: Path, **settings: Any
) -> tuple[float, Any]:
    """The same through Spark's own Kafka sink: the seconds, and Spark's progress reports."""
    sink = new_topic(cluster, "sparks", PARTITIONS)
    kafka = cluster.client_config()
    config = StreamConfig(
        name=sink, checkpoint=str(folder / sink), source=(source,), sink=sink, kafka=kafka, drain=True, **settings
    )
    begun = time.perf_counter()
    query = (
        read(spark, config, kafka, {"startingOffsets": "earliest"})
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka["bootstrap.servers"])
        .option("topic", sink)
        .option("checkpointLocation", config.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - begun, list(query.recentProgress)


def throughput(
    spark: Any, cluster: KafkaCluster, records: int, lanes: list[int], rounds: int, announce: Announce
) -> dict[str, float]:
    """Records per second of one large batch; the best of a few rounds, taken in turn."""
    source = new_topic(cluster, "source", PARTITIONS)
    announce(f"writing {records:,} records")
    fill(cluster, source, records)
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as folder:
        for number in range(rounds):
            for name in ("spark", *map(str, lanes)):
                drain_to = drain_to_sparks_sink if name == "spark" else drain_to_this_sink
                settings = {} if name == "spark" else {"lanes": int(name), "transaction_timeout": 300}
                seconds, _ = drain_to(spark, cluster, source, Path(folder), **settings)
                label = "Spark's own sink" if name == "spark" else f"this sink, {name} lane(s)"
                announce(f"round {number + 1}: {label}: {seconds:.2f} s, {records / seconds:,.0f} records/s")
                key = str(name)
                best[key] = min(best.get(key, float("inf")), seconds)
    return {key: records / seconds for key, seconds in best.items()}


def small_batches(
    spark: Any, cluster: KafkaCluster, batches: int, size: int, lanes: list[int], announce: Announce
) -> dict[str, float]:
    """Median milliseconds per small batch, as Spark reports it (triggerExecution), the first few left out."""
    source = new_topic(cluster, "source", PARTITIONS)
    fill(cluster, source, batches * size)
    medians: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as folder:
        for name in ("spark", *map(str, lanes)) * 2:
            settings: dict[str, Any] = {"max_offsets_per_batch": size}
            if name == "spark":
                _, progress = drain_to_sparks_sink(spark, cluster, source, Path(folder), **settings)
                times = [p["durationMs"]["triggerExecution"] for p in progress if p["numInputRows"]]
            else:
                _, record = drain_to_this_sink(spark, cluster, source, Path(folder), lanes=int(name), **settings)
                times = [b["durations_ms"]["triggerExecution"] for b in record.batches if b["input_rows"]]
                last = record.batches[-1]["lanes"][0]
                announce(
                    "   last batch, lane 0: " + ", ".join(f"{k} {v:.1f}" for k, v in last.items() if k.endswith("_ms"))
                )
            median = statistics.median(times[5:])
            label = "Spark's own sink" if name == "spark" else f"this sink, {name} lane(s)"
            announce(f"{label}: {len(times)} batches of {size}, median {median:.0f} ms")
            medians[str(name)] = min(medians.get(str(name), float("inf")), median)
    return medians
