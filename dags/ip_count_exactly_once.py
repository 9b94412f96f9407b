"""Count requests per IP from Kafka to Kafka: submit, wait for progress, verify; after a failure resume and verify again."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, task
from streams import RETRY, ip_count

from airflow_ckpt import (
    CheckpointProgressSensor,
    ExactlyOnceVerifyOperator,
    SparkStreamResumeOperator,
    SparkStreamStopOperator,
    SparkStreamSubmitOperator,
    SparkStreamSuperviseOperator,
)

TOPIC = {"type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}$"}

with DAG(
    dag_id="ip_count_exactly_once",
    description="Requests per IP in 5 s windows, exactly once, and proven",
    schedule="0 * * * *",
    catchup=False,
    default_args=RETRY,
    tags=["airflow-ckpt"],
    doc_md=__doc__,
    render_template_as_native_obj=False,
    params={
        "name": Param(
            "ip_count", **TOPIC, title="Stream", section="Stream",
            description="Names the stream, its consumer group and its ledger. A new name is a new stream.",
        ),
        "source": Param(
            "ip_count_source", **TOPIC, title="Source", section="Stream", description="Topic with access-log lines.",
        ),
        "sink": Param(
            "ip_count_sink", **TOPIC, title="Sink", section="Stream", description="Topic for the counts.",
        ),
        "guarantee": Param(
            "exactly_once", type="string", enum=["exactly_once", "at_least_once"], title="Guarantee", section="Stream",
            values_display={"exactly_once": "exactly once (transactions)", "at_least_once": "at least once (Spark's sink)"},
            description="At least once is Spark's own sink, for comparison: a crash doubles records, and as it keeps no ledger, "
            "nothing can be verified and the run ends as failed.",
        ),
        "trigger_seconds": Param(
            5, type="number", minimum=0, maximum=3600, title="Trigger interval, s", section="Stream",
            description="Time between the starts of two batches; each batch is a checkpoint and a transaction.",
        ),
        "max_offsets": Param(
            ip_count.max_offsets_per_batch, type="integer", minimum=1, title="Records per batch, at most", section="Stream",
            description="Keeps batches, and so transactions, small when the stream has to catch up.",
        ),
        "batches": Param(
            3, type="integer", minimum=1, maximum=10000, title="Batches to wait for", section="Checks",
            description="Progress counts as made when the run has committed so many batches.",
        ),
        "progress_minutes": Param(
            10, type="number", minimum=0.1, maximum=1440, title="Time for progress, minutes", section="Checks",
            description="How long to wait for that progress before it counts as a failure.",
        ),
        "since": Param(
            "last", type="string", enum=["last", "start"], title="Verify from", section="Checks",
            values_display={"last": "where the last verification ended", "start": "the first batch"},
            description="The ledger keeps the newest 1,000 batches: verify from the first batch only while there are fewer.",
        ),
        "stop_afterwards": Param(
            False, type="boolean", title="Stop the stream afterwards", section="Checks",
            description="Off: the stream runs on after this DAG run.",
        ),
        "crash": Param(
            "", type=["null", "string"], pattern=r"^\s*($|[\[{])", title="Armed crashes (fire drill)", section="Fire drill",
            description="JSON for CKPT_CRASH: the point at which the driver kills itself. Empty: never.",
        ),
    },
) as dag:  # fmt: skip
    stream = ip_count.but(
        name="{{ params.name }}",
        checkpoint=ip_count.checkpoint.rpartition("/")[0] + "/{{ params.name }}",
        source="{{ params.source }}",
        sink="{{ params.sink }}",
        guarantee="{{ params.guarantee }}",
        trigger_interval="{{ params.trigger_seconds }} seconds",
        max_offsets_per_batch="{{ params.max_offsets }}",
        env={"CKPT_CRASH": "{{ params.crash or '' }}"},
    )
    submit = SparkStreamSubmitOperator(task_id="submit", stream=stream, deferrable=True)
    progress = CheckpointProgressSensor(
        task_id="progress",
        stream=stream,
        batches="{{ params.batches }}",
        timeout="{{ params.progress_minutes }} minutes",
        deferrable=True,
    )
    verify = ExactlyOnceVerifyOperator(task_id="verify", stream=stream, since="{{ params.since }}", count_aborted=True)

    resume = SparkStreamResumeOperator(task_id="resume", stream=stream, deferrable=True, trigger_rule="one_failed")
    # Do not restart a stream that was stopped on purpose.
    catch_up = SparkStreamSuperviseOperator(
        task_id="catch_up", stream=stream, until="drained", start=False, deferrable=True
    )
    # The same range as the first verification, so that its findings are found again.
    since = "{{ (ti.xcom_pull(task_ids='verify', key='verdict') or {}).get('since', params.since) }}"
    verify_again = ExactlyOnceVerifyOperator(task_id="verify_again", stream=stream, since=since, count_aborted=True)
    # The DAG run succeeds if its last verification does.
    verified = EmptyOperator(task_id="verified", trigger_rule="one_success")

    @task.short_circuit(trigger_rule="all_done")
    def stop_wanted(params: dict[str, object]) -> bool:
        """Whether the form asks to stop the stream at the end of this run."""
        return bool(params["stop_afterwards"])

    stop = SparkStreamStopOperator(task_id="stop", stream=stream, deferrable=True)

    submit >> progress >> verify
    [submit, progress, verify] >> resume >> catch_up >> verify_again
    [verify, verify_again] >> verified
    [verify, verify_again] >> stop_wanted() >> stop
