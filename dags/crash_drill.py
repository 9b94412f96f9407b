"""A fire drill: kill the driver of a scratch stream at a chosen point of the protocol, resume it, and verify the sink."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from airflow.providers.apache.kafka.hooks.client import KafkaAdminClientHook
from airflow.providers.apache.kafka.hooks.produce import KafkaProducerHook
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException
from forms import FIRE_DRILL, setting_field
from streams import CHECKPOINTS, RETRY

from airflow_ckpt import ExactlyOnceVerifyOperator, FixedDelay, SparkStreamSuperviseOperator, Stream
from airflow_ckpt.examples.fill_topic import fill
from ckpt_stream.protocol.crash_points import BETWEEN_LANES, DRIVER_POINTS, POINTS
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic

NAME = "crash_drill_{{ dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}"
#: The process that is killed writes this file, so that no process is killed a second time.
HIT = f"{tempfile.gettempdir()}/{NAME}.hit"

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
            "after_last_lane", type="string", enum=list(POINTS), title="Crash point", section=FIRE_DRILL,
            description="The point of a batch at which the process is killed, in the order in which a batch passes them. "
            f"On a cluster, where executors write: {', '.join(DRIVER_POINTS)}.",
        ),
        "kill": Param(
            "both", type="string", enum=["driver", "worker", "both"], title="Process to kill", section=FIRE_DRILL,
            description="The driver, the Python worker that writes, or both.",
        ),
        "records": Param(
            1000, type="integer", minimum=30, maximum=1000000, title="Records", section=FIRE_DRILL,
            description="Number of records that the drill sends to the source.",
        ),
        "lanes": setting_field(
            "lanes", 1, "The crash point between_lanes needs two.", type="integer", minimum=1, maximum=16, title="Lanes",
        ),
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
        max_offsets_per_batch="{{ params.records // 3 }}",
        audit="record",
        restart=FixedDelay(attempts=2, delay=timedelta(seconds=1)),
        env={
            "CKPT_CRASH": '{"point": "{{ params.point }}", "kill": "{{ params.kill }}", "batch": 1, "once": "'
            + HIT
            + '"}'
        },
    )

    @task
    def create_input(source: str, sink: str, params: dict[str, int]) -> int:
        """Create topics, and send records to the source; a retry sends the records that the first attempt has not sent."""
        if params["point"] == BETWEEN_LANES and params["lanes"] < 2:
            raise AirflowFailException("between_lanes is a point of the second lane: choose two lanes or more")
        admin = KafkaAdminClientHook(stream.kafka_conn_id)
        admin.create_topic([(source, 2, -1), (sink, 2, -1)])
        producer = KafkaProducerHook(stream.kafka_conn_id).get_producer()
        fill(admin.get_conn, producer, source, ((str(n % 97), str(n)) for n in range(params["records"])))
        return params["records"]

    run = SparkStreamSuperviseOperator(task_id="run_die_resume", stream=stream, until="finished", deferrable=True)
    verify = ExactlyOnceVerifyOperator(task_id="verify", stream=stream, count_aborted=True)

    @task
    def check_drill(declared: dict, verdict: dict, records: int, params: dict[str, str]) -> str:
        """Fail if no process was killed, because the drill has then proven nothing."""
        from airflow_ckpt.hooks.stream import StreamHook
        from ckpt_stream.protocol.run_files.restart_history import read_history

        files = StreamHook(Stream.from_dict(declared)).get_conn().access.files
        deaths = [entry for entry in read_history(files) if entry["kind"] == "restart"]
        if not deaths:
            raise AirflowFailException(
                f"no process was killed at {params['point']}; on a cluster choose one of {', '.join(DRIVER_POINTS)}"
            )
        if verdict["sink_committed"] != records:
            raise AirflowFailException(f"{records} records went in, {verdict['sink_committed']} came out")
        line = f"{params['point']}: {deaths[0]['after_state']}, {deaths[0]['reason']}; resumed: {records} records once"
        print(line)
        return line

    @task
    def clean_up(declared: dict, hit: str) -> None:
        """After a successful drill, delete everything except the checkpoint, which has the verdict."""
        scratch = Stream.from_dict(declared)
        topics = [*scratch.config.source, scratch.sink, ledger_topic(scratch.config.sink_id)]
        admin = KafkaAdminClientHook(scratch.kafka_conn_id)
        # An earlier try may have deleted some of them.
        there = admin.get_conn.list_topics(timeout=30).topics
        if found := [topic for topic in topics if topic in there]:
            admin.delete_topic(found)
        Path(hit).unlink(missing_ok=True)

    records = create_input(f"{NAME}_source", f"{NAME}_sink")
    declared = stream.as_dict()
    records >> run >> verify >> check_drill(declared, verify.output, records) >> clean_up(declared, HIT)
