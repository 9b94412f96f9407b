"""One broker and one Spark session for the benchmarks, the session with the optimising compiler; and topics with records."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_ckpt.local.jars.stack_jars import spark_kafka_jars
from airflow_ckpt.local.kafka.cluster import KafkaCluster
from airflow_ckpt.local.processes.ports import free_port


@contextmanager
def kafka() -> Iterator[KafkaCluster]:
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as folder:
        cluster = KafkaCluster(Path(folder) / "kafka", base_port=free_port())
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def spark_session(cores: int = 2) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("bench")
        .config("spark.jars", ",".join(map(str, sorted(spark_kafka_jars().glob("*.jar")))))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def new_topic(cluster: KafkaCluster, name: str, partitions: int) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    unique = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(cluster.client_config())
    admin.create_topics([NewTopic(unique, partitions, 1)])[unique].result(30)
    return unique


def fill(cluster: KafkaCluster, topic: str, records: int, size: int = 100) -> None:
    """Write records of about ``size`` bytes, spread evenly over the partitions."""
    from confluent_kafka import Producer

    producer = Producer({**cluster.client_config(), "linger.ms": 50, "batch.num.messages": 50_000})
    pad = b"x" * (size - 16)
    for i in range(records):
        while True:
            try:
                producer.produce(topic, b"%016d" % i + pad, b"%08d" % (i % 100_000))
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
