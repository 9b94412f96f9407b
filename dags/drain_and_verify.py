"""Streaming as a scheduled job: process what has arrived, end, and prove that all of it is in the sink once."""

from __future__ import annotations

from airflow.sdk import DAG
from streams import copy_hourly

from airflow_ckpt import ExactlyOnceVerifyOperator, SparkStreamSuperviseOperator

with DAG(
    dag_id="drain_and_verify",
    description="Drain the source (AvailableNow), then verify what was added",
    schedule="0 * * * *",
    catchup=False,
    max_active_runs=1,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
) as dag:
    drain = SparkStreamSuperviseOperator(task_id="drain", stream=copy_hourly, until="finished", deferrable=True)
    verify = ExactlyOnceVerifyOperator(task_id="verify", stream=copy_hourly, since="last")
    drain >> verify
