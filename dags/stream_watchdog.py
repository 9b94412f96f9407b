"""Look after every declared stream: how is it, could it be resumed safely, resume it if it is broken, verify what is new.

Whoever is named in `ALERTS` (streams.py) is told of failures, restarts, risks and verdicts, and of tasks that fail here.
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
from airflow_ckpt.notifications.tell import AT_RISK, tell

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
            description="Which stream to look after this time. One that was never started is left alone.",
        ),
        "max_lag_minutes": Param(
            30, type="number", minimum=0, maximum=10080, title="Lag to alert at, minutes",
            description="A stream whose oldest unread record is older than this is reported; it is not restarted for it.",
        ),
        "depth": Param(
            "sink", type="string", enum=["ledger", "sink"], title="Depth of the verification",
            values_display={"ledger": "ledger: the bookkeeping", "sink": "sink: every new committed record is read"},
            description="What is verified of the batches that are new since the last time at this depth.",
        ),
        "since": Param(
            "last", type="string", pattern=r"^(last|start|\d+)$", title="Verify from",
            description="last: what is new. A batch number, for one stream: go on from there, for instance behind a "
            "violation that is known.",
        ),
    },
) as dag:  # fmt: skip
    for stream in WATCHED:

        @task_group(group_id=stream.name)
        def look_after(stream: Stream = stream) -> None:
            @task.short_circuit(task_id="status")
            def status(params: dict[str, Any], **context: Any) -> bool:
                """Say how the stream is and what is in its way; go on only if it is meant and was ever started."""
                if params["stream"] not in ("all", stream.name):
                    return False
                if params["stream"] == "all" and params["since"].isdecimal():
                    raise AirflowFailException("a batch number is one stream's: choose the stream in the form too")
                control = StreamHook(stream, by="stream_watchdog").get_conn()
                found = control.status(lag_seconds=True)
                log.info("%s", found.line())
                if found.state == "NEW":
                    return False
                risks = [str(finding) for finding in control.risks(found)]
                late = (found.lag_seconds or 0) > params["max_lag_minutes"] * 60
                if late and found.state not in ("STOPPED", "FINISHED"):
                    risks.append(f"too far behind: {found.line()}")
                for risk in risks:
                    log.warning("at risk: %s", risk)
                    tell(ALERTS, context, AT_RISK, stream.name, risk, found)
                return True

            # One restart and ten minutes at most: the other streams wait for the next round.
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
            # Also what cannot be resumed is verified.
            status() >> [resume, verify]

        look_after()
