"""The streams of these examples, each declared once. Copy one and change the names."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from airflow_ckpt import FixedDelay, Stream, StreamWebhookNotifier

#: Any storage that both Spark and Airflow can reach: hdfs://, s3a://, gs://, abfss://, or a folder of this machine.
HOME = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
CHECKPOINTS = os.environ.get("CKPT_CHECKPOINTS", f"file://{HOME}/checkpoints")
#: Notifiers for a stream that needs help: `CKPT_ALERTS` lists `http` connections, see StreamWebhookNotifier.
ALERTS = tuple(StreamWebhookNotifier(conn_id) for conn_id in os.environ.get("CKPT_ALERTS", "").split())
#: A task is retried after a failure of Airflow itself. A failure that no retry can cure fails the task at once.
RETRY = {"retries": 2, "retry_delay": timedelta(seconds=5)}

ip_count = Stream(
    name="ip_count",
    application="spark/ip_count.py",
    checkpoint=f"{CHECKPOINTS}/ip_count",
    source="ip_count_source",
    sink="ip_count_sink",
    trigger_interval="5 seconds",
    max_offsets_per_batch=100_000,
    restart=FixedDelay(attempts=3, delay=timedelta(seconds=10)),
    audit="record",
    # The number of state partitions of a checkpoint can never be changed. Spark's default of 200 is for clusters.
    spark_conf={"spark.sql.shuffle.partitions": "4"},
)

copy_hourly = Stream(
    name="copy_hourly",
    application="spark/copy_topic.py",
    checkpoint=f"{CHECKPOINTS}/copy_hourly",
    source="copy_source",
    sink="copy_sink",
    start="earliest",
    drain=True,
)

word_count = Stream(
    name="word_count",
    application="spark/word_count.py",
    checkpoint=f"{CHECKPOINTS}/word_count",
    source="word_count_source",
    sink="word_count_sink",
    max_offsets_per_batch=1,
    min_pause="500 ms",
    batch_timeout="1 minute",
    restart=FixedDelay(attempts=3, delay=timedelta(seconds=10)),
    spark_conf={"spark.sql.shuffle.partitions": "2"},
)

#: The watchdog checks these streams, which are meant to run all the time.
WATCHED = (ip_count, word_count)
