"""Look after every declared stream: how is it, could it be resumed safely, resume it if it is broken, verify what is new."""

from __future__ import annotations

import logging

from airflow.sdk import DAG, task, task_group
from streams import WATCHED

from airflow_ckpt import ExactlyOnceVerifyOperator, SparkStreamResumeOperator, Stream
from airflow_ckpt.hooks.stream import StreamHook

log = logging.getLogger(__name__)

with DAG(
    dag_id="stream_watchdog",
    description="Status, preflight, resume if needed, incremental verification, for each stream",
    schedule="*/5 * * * *",
    catchup=False,
    max_active_runs=1,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
) as dag:
    for stream in WATCHED:

        @task_group(group_id=stream.name)
        def look_after(stream: Stream = stream) -> None:
            @task.short_circuit(task_id="status")
            def status() -> bool:
                """Log how the stream is and what speaks against a restart; go on only if it was ever started."""
                control = StreamHook(stream, by="stream_watchdog").get_conn()
                found = control.status(lag_seconds=True)
                log.info("%s", found.line())
                if found.state == "NEW":
                    return False
                for finding in control.preflight(found):
                    log.warning("preflight: %s", finding)
                return True

            resume = SparkStreamResumeOperator(task_id="resume", stream=stream, deferrable=True)
            verify = ExactlyOnceVerifyOperator(task_id="verify", stream=stream, since="last")
            status() >> resume >> verify

        look_after()
