"""Streaming as a scheduled job: process new input, end, and prove that each record is in the sink exactly once."""

from __future__ import annotations

from airflow.sdk import DAG, Param
from forms import CHECKS, setting_field
from streams import RETRY, copy_hourly

from airflow_ckpt import ExactlyOnceVerifyOperator, SparkStreamSuperviseOperator

with DAG(
    dag_id="drain_and_verify",
    description="Drain the source (AvailableNow), then verify what was added",
    schedule="0 * * * *",
    catchup=False,
    max_active_runs=1,
    default_args=RETRY,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
    params={
        "max_offsets": setting_field(
            "max_offsets_per_batch", 100000, "A source that is far behind is drained in several batches.",
            type="integer", minimum=1, title="Records per batch, at most",
        ),
        "since": Param(
            "last", type="string", enum=["last", "start"], title="Verify from", section=CHECKS,
            values_display={"last": "where the last verification ended", "start": "the first batch"},
            description="From the first batch also finds later changes of the sink. The ledger keeps the newest 1,000 batches.",
        ),
        "depth": Param(
            "sink", type="string", enum=["ledger", "sink", "recompute"], title="Depth of the verification", section=CHECKS,
            values_display={
                "ledger": "ledger: the bookkeeping",
                "sink": "sink: every committed record is read",
                "recompute": "recompute: the output is computed from the source again and compared with the sink",
            },
            description="ledger is fast; sink includes it; recompute does not use the ledger and begins at the first record.",
        ),
    },
) as dag:  # fmt: skip
    stream = copy_hourly.but(max_offsets_per_batch="{{ params.max_offsets }}")
    drain = SparkStreamSuperviseOperator(task_id="drain", stream=stream, until="finished", deferrable=True)
    verify = ExactlyOnceVerifyOperator(
        task_id="verify", stream=stream, since="{{ params.since }}", depth="{{ params.depth }}"
    )
    drain >> verify
