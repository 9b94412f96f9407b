"""A word count that fails on every ERROR. It is restarted three times, with pauses of ten seconds; the fourth failure is final.

Every other word is counted once: after a restart the counts continue from their values before the failure.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime

from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook
from airflow.providers.apache.kafka.hooks.produce import KafkaProducerHook
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException
from streams import RETRY, word_count

from airflow_ckpt import SparkStreamSuperviseOperator, Stream
from airflow_ckpt.examples.fill_topic import fill

NAME = "word_count_restore_{{ dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}"


def table(words: list[str]) -> list[tuple[str, int]]:
    """The records that the sink must hold: every word up to the fourth ERROR, with its count so far."""
    rows, counts, errors = [], Counter[str](), 0
    for word in words:
        errors += word == "ERROR"
        if errors > 3:
            break
        if word != "ERROR":
            counts[word] += 1
            rows.append((word, counts[word]))
    return rows


with DAG(
    dag_id="word_count_restore",
    description="Restore with state: the table of counts survives three failures; the fourth is final",
    schedule=None,
    default_args=RETRY,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
    params={
        "words": Param(
            "a a b ERROR b a ERROR a ERROR b ERROR", type="string", pattern=r"((^|\s)ERROR(?=\s|$).*){4}", title="Words",
            description="Each word becomes a record. ERROR makes the stream fail: at least four, as the fourth failure is final.",
        ),
    },
) as dag:  # fmt: skip
    stream = word_count.but(
        name=NAME,
        checkpoint=word_count.checkpoint.rpartition("/")[0] + "/" + NAME,
        source=f"{NAME}_source",
        sink=f"{NAME}_sink",
        start="earliest",
    )

    @task
    def send_words(source: str, sink: str, params: dict[str, str]) -> None:
        """Create two topics and send each word once; a retry sends the words that the first attempt has not sent."""
        admin = KafkaAdminClientHook(stream.kafka_conn_id)
        admin.create_topic([(source, 1, -1), (sink, 1, -1)])
        producer = KafkaProducerHook(stream.kafka_conn_id).get_producer()
        fill(admin.get_conn, producer, source, ((None, word) for word in params["words"].split()))

    count = SparkStreamSuperviseOperator(task_id="count_words", stream=stream, until="finished", deferrable=True)

    @task(trigger_rule="all_done")
    def check_table(declared: dict, params: dict[str, str]) -> list[tuple[str, int]]:
        """Check the counts in the sink, the three restarts and their pauses, and that the fourth failure was final."""
        from airflow_ckpt.examples.topic_values import read_values
        from airflow_ckpt.hooks.stream import StreamHook
        from ckpt_stream.protocol.run_files.restart_history import read_history

        control = StreamHook(Stream.from_dict(declared)).get_conn()
        rows = [json.loads(value) for value in read_values(control.access.kafka, control.stream.sink)]
        counts = [(row["word"], row["count"]) for row in rows]
        restarts = [entry for entry in read_history(control.access.files) if entry["kind"] == "restart"]
        pauses = [
            (datetime.fromisoformat(r["time"]) - datetime.fromisoformat(r["broken_since"])).total_seconds()
            for r in restarts
        ]
        state = control.status().state
        print(f"counts: {counts}; {len(restarts)} restarts, {pauses} seconds after their failures; then {state}")
        if counts != (wanted := table(params["words"].split())):
            raise AirflowFailException(f"the sink holds {counts}, not {wanted}")
        if state != "FAILED" or len(restarts) != 3 or min(pauses) < 10:
            raise AirflowFailException("expected three restarts, each at least 10 s after its failure, and then FAILED")
        return counts

    send_words(f"{NAME}_source", f"{NAME}_sink") >> count >> check_table(stream.as_dict())
