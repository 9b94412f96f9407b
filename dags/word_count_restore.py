"""A word count that fails on every ERROR, is restarted three times ten seconds apart, and fails for good on the fourth.

Every word that is not ERROR is counted once: the counts go on where they were before each failure.
"""

from __future__ import annotations

import json
from datetime import datetime

from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook
from airflow.providers.apache.kafka.hooks.consume import KafkaConsumerHook
from airflow.providers.apache.kafka.hooks.produce import KafkaProducerHook
from airflow.sdk import DAG, task
from streams import word_count

from airflow_ckpt import SparkStreamSuperviseOperator
from airflow_ckpt.hooks.stream import StreamHook

WORDS = ["a", "a", "b", "ERROR", "b", "a", "ERROR", "a", "ERROR", "b", "ERROR"]
TABLE = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 3)]
NAME = "word_count_restore_{{ dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}"

with DAG(
    dag_id="word_count_restore",
    description="Restore with state: the table of counts survives three failures; the fourth is final",
    schedule=None,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
) as dag:
    stream = word_count.but(
        name=NAME,
        checkpoint=word_count.checkpoint.rpartition("/")[0] + "/" + NAME,
        source=f"{NAME}_source",
        sink=f"{NAME}_sink",
        start="earliest",
    )

    @task
    def say_words(source: str, sink: str) -> None:
        """Make two topics, and say the words."""
        KafkaAdminClientHook(stream.kafka_conn_id).create_topic([(source, 1, 1), (sink, 1, 1)])
        producer = KafkaProducerHook(stream.kafka_conn_id).get_producer()
        for word in WORDS:
            producer.produce(source, value=word)
        if unsent := producer.flush(30):
            raise RuntimeError(f"{unsent} words were not taken by Kafka")

    count = SparkStreamSuperviseOperator(task_id="count_words", stream=stream, until="finished", deferrable=True)

    @task(trigger_rule="all_done")
    def check_table(name: str, sink: str) -> list[tuple[str, int]]:
        """The counts in the sink, the three restarts, their pauses, and that the fourth failure was final."""
        control = StreamHook(stream.rendered(lambda v: json.loads(json.dumps(v).replace(NAME, name)))).get_conn()
        status = control.status()
        from airflow_ckpt.streams.restarts import read_history

        history = read_history(control.sources.files)
        restarts = [entry for entry in history if entry["kind"] == "restart"]
        counts = [(row["word"], row["count"]) for row in read_committed(sink)]
        print("counts:", counts)
        print("restarts:", [(r["time"], r["reason"]) for r in restarts])
        if counts != TABLE:
            raise ValueError(f"the sink holds {counts}, not {TABLE}")
        if status.state != "FAILED" or len(restarts) != 3:
            raise ValueError(f"{len(restarts)} restarts, then {status.state}; expected 3, then FAILED")
        failures = [run.history[-1]["time"] for run in runs_of(control) if run.state == "FAILED"]
        pauses = [
            (datetime.fromisoformat(r["time"]) - datetime.fromisoformat(f)).total_seconds()
            for r, f in zip(restarts, failures[:3], strict=True)
        ]
        print("pauses in seconds:", pauses)
        if min(pauses) < 10:
            raise ValueError(f"a restart came {min(pauses)} s after its failure; the strategy says 10 s")
        return counts

    def runs_of(control) -> list:
        from airflow_ckpt.checkpoint.runs import read_run, run_names

        files = control.sources.files
        return [run for name in run_names(files) if (run := read_run(files, name))]

    def read_committed(topic: str) -> list[dict]:
        """Everything a committed reader sees in a topic of one partition."""
        from confluent_kafka import TopicPartition

        hook = KafkaConsumerHook([topic], kafka_config_id=stream.kafka_conn_id)
        config = {**hook.get_connection(stream.kafka_conn_id).extra_dejson, "group.id": f"{topic}-check"}
        from confluent_kafka import Consumer

        consumer = Consumer({**config, "isolation.level": "read_committed", "enable.auto.commit": False})
        try:
            partition = TopicPartition(topic, 0, 0)
            _, end = consumer.get_watermark_offsets(partition, timeout=30)
            consumer.assign([partition])
            rows = []
            while consumer.position([partition])[0].offset < end:
                message = consumer.poll(5)
                if message is None:
                    break
                if not message.error():
                    rows.append(json.loads(message.value()))
            return rows
        finally:
            consumer.close()

    say_words(f"{NAME}_source", f"{NAME}_sink") >> count >> check_table(NAME, f"{NAME}_sink")
