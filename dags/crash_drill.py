"""A fire drill: kill the driver of a scratch stream at a chosen point of the protocol, resume it, and verify the sink."""

from __future__ import annotations

import json
from datetime import timedelta

from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook
from airflow.providers.apache.kafka.hooks.produce import KafkaProducerHook
from airflow.sdk import DAG, Param, task
from streams import CHECKPOINTS, RETRY

from airflow_ckpt import ExactlyOnceVerifyOperator, FixedDelay, SparkStreamSuperviseOperator, Stream
from ckpt_stream.crash import POINTS

NAME = "crash_drill_{{ dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}"
ONCE = f"{CHECKPOINTS.removeprefix('file://')}/{NAME}.hit"

with DAG(
    dag_id="crash_drill",
    description="Kill a scratch stream at a chosen point, resume, verify",
    schedule="0 6 * * 1",
    catchup=False,
    max_active_runs=1,
    default_args=RETRY,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
    params={
        "point": Param(
            "mid_produce", type="string", enum=list(POINTS), title="Crash point",
            description="Where in the life of a batch the process dies, in the order in which a batch passes them.",
        ),
        "kill": Param(
            "both", type="string", enum=["driver", "worker", "both"], title="Who dies",
            description="The driver, the Python worker that writes, or both.",
        ),
        "lanes": Param(1, type="integer", minimum=1, maximum=16, description="Transactions per batch."),
        "records": Param(1000, type="integer", minimum=1, maximum=1000000, description="Records to send through."),
    },
) as dag:  # fmt: skip
    stream = Stream(
        name=NAME,
        application="spark/copy_topic.py",
        checkpoint=f"{CHECKPOINTS}/{NAME}",
        source=f"{NAME}_source",
        sink=f"{NAME}_sink",
        start="earliest",
        drain=True,
        lanes="{{ params.lanes }}",
        max_offsets_per_batch="{{ [params.records // 3, 1] | max }}",
        audit="record",
        restart=FixedDelay(attempts=2, delay=timedelta(seconds=1)),
        env={
            "CKPT_CRASH": '{"point": "{{ params.point }}", "kill": "{{ params.kill }}", "batch": 1, "once": "'
            + ONCE
            + '"}'
        },
    )

    @task(retries=0)
    def light_the_fire(source: str, sink: str, params: dict[str, int]) -> int:
        """Scratch topics, and records in the source."""
        KafkaAdminClientHook(stream.kafka_conn_id).create_topic([(source, 2, -1), (sink, 2, -1)])
        producer = KafkaProducerHook(stream.kafka_conn_id).get_producer()
        for number in range(params["records"]):
            producer.produce(source, key=str(number % 97), value=str(number), on_delivery=None)
            producer.poll(0)
        if unsent := producer.flush(60):
            raise RuntimeError(f"{unsent} records were not taken by Kafka")
        return params["records"]

    run = SparkStreamSuperviseOperator(task_id="run_die_resume", stream=stream, until="finished", deferrable=True)
    verify = ExactlyOnceVerifyOperator(task_id="verify", stream=stream, count_aborted=True)

    @task
    def was_it_a_drill(hit: str, verdict: dict, records: int) -> str:
        """A drill in which nobody died proves nothing."""
        with open(hit) as marker:
            where = json.load(marker)
        if verdict["sink_committed"] != records:
            raise ValueError(f"{records} records went in, {verdict['sink_committed']} came out")
        line = f"killed at {where['point']} of batch {where['batch']}, resumed: {records} of {records} records once"
        print(line)
        return line

    records = light_the_fire(f"{NAME}_source", f"{NAME}_sink")
    records >> run >> verify >> was_it_a_drill(ONCE, verify.output, records)
