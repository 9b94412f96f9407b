"""For every declared stream: check its status and whether a resume is safe, resume it if it is broken, verify new batches.

The notifiers in `ALERTS` (streams.py) get failures, restarts, risks and verdicts, and the tasks of this DAG that fail.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task, task_group
from airflow.sdk.exceptions import AirflowFailException
from streams import ALERTS, RETRY, WATCHED

from airflow_ckpt import ExactlyOnceVerifyOperator, SparkStreamResumeOperator, Stream
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.notifications.events import AT_RISK, send_event

log = logging.getLogger(__name__)

with DAG(
    dag_id="stream_watchdog",
    description="Status, preflight, resume if needed, incremental verification, for each stream",
    schedule="*/5 * * * *",
    catchup=False,
    max_active_runs=1,
    default_args={**RETRY, "on_failure_callback": list(ALERTS)},
    tags=["airflow-ckpt"],
    doc_md=__doc__,
    params={
        "stream": Param(
            "all", type="string", enum=["all", *(stream.name for stream in WATCHED)], title="Stream",
            description="The streams of this run. A stream that was never started is skipped.",
        ),
        "max_lag_minutes": Param(
            30, type="number", minimum=0, maximum=10080, title="Lag to alert at, minutes",
            description="A stream whose oldest unread record is older than this is reported, but not restarted.",
        ),
        "depth": Param(
            "sink", type="string", enum=["ledger", "sink"], title="Depth of the verification",
            values_display={"ledger": "ledger: the bookkeeping", "sink": "sink: every new committed record is read"},
            description="How the batches since the last verification at this depth are verified.",
        ),
        "since": Param(
            "last", type="string", pattern=r"^(last|start|\d+)$", title="Verify from",
            description="last: new batches. A batch number, for one stream: verify from there, for example after a known "
            "violation.",
        ),
    },
) as dag:  # fmt: skip
    for stream in WATCHED:

        @task_group(group_id=stream.name)
        def watch(stream: Stream = stream) -> None:
            @task.short_circuit(task_id="status")
            def status(params: dict[str, Any], **context: Any) -> bool:
                """Log the status and the risks; skip the other tasks for a stream that is not chosen or was never started."""
                if params["stream"] not in ("all", stream.name):
                    return False
                if params["stream"] == "all" and params["since"].isdecimal():
                    raise AirflowFailException(
                        "a batch number belongs to one stream: choose the stream in the form too"
                    )
                control = StreamHook(stream, by="stream_watchdog").get_conn()
                look = control.look_before_start(lag_seconds=True)
                found = look.status
                log.info("%s", found.line())
                if found.state == "NEW":
                    return False
                risks = [str(finding) for finding in control.risks(look)]
                late = (found.lag_seconds or 0) > params["max_lag_minutes"] * 60
                if late and found.state not in ("STOPPED", "FINISHED"):
                    risks.append(f"too far behind: {found.line()}")
                for risk in risks:
                    log.warning("at risk: %s", risk)
                    send_event(ALERTS, context, AT_RISK, stream.name, risk, found)
                return True

            # One restart and ten minutes at most: the next run of this DAG waits until this run has ended.
            resume = SparkStreamResumeOperator(
                task_id="resume",
                stream=stream,
                restarts=1,
                timeout=timedelta(minutes=10),
                deferrable=True,
                notify=ALERTS,
            )
            verify = ExactlyOnceVerifyOperator(
                task_id="verify", stream=stream, since="{{ params.since }}", depth="{{ params.depth }}", notify=ALERTS
            )
            # A stream that cannot be resumed is verified too.
            status() >> [resume, verify]

        watch()
