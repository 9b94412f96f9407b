"""Count requests per IP from Kafka to Kafka: submit, wait for progress, verify; after a failure resume and verify again."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, task
from forms import CHECKS, FIRE_DRILL, setting_field
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
        "name": setting_field("name", "ip_count", "A new name is a new stream.", **TOPIC, title="Stream"),
        "source": setting_field("source", "ip_count_source", "Its records are lines of an access log.", **TOPIC, title="Source"),
        "sink": setting_field("sink", "ip_count_sink", "It gets the counts.", **TOPIC, title="Sink"),
        "guarantee": setting_field(
            "guarantee", "exactly_once",
            "Then there is no ledger to verify with, and the run ends as failed.",
            type="string", enum=["exactly_once", "at_least_once"], title="Guarantee",
            values_display={"exactly_once": "exactly once (transactions)", "at_least_once": "at least once (Spark's sink)"},
        ),
        "trigger_seconds": setting_field(
            "trigger_interval", 5, type="number", minimum=0, maximum=3600, title="Trigger interval, s",
        ),
        "max_offsets": setting_field(
            "max_offsets_per_batch", ip_count.max_offsets_per_batch, type="integer", minimum=1,
            title="Records per batch, at most",
        ),
        "batches": Param(
            3, type="integer", minimum=1, maximum=10000, title="Batches to wait for", section=CHECKS,
            description="Number of batches that the run must commit before the sink is verified.",
        ),
        "progress_minutes": Param(
            10, type="number", minimum=0.1, maximum=1440, title="Time for progress, minutes", section=CHECKS,
            description="How long to wait for these batches. Then the task fails, and the stream is resumed if it is broken.",
        ),
        "since": Param(
            "last", type="string", enum=["last", "start"], title="Verify from", section=CHECKS,
            values_display={"last": "where the last verification ended", "start": "the first batch"},
            description="The ledger keeps the newest 1,000 batches: verify from the first batch only while there are fewer.",
        ),
        "stop_afterwards": Param(
            False, type="boolean", title="Stop the stream afterwards", section=CHECKS,
            description="Off: the stream continues after this DAG run.",
        ),
        "crash": Param(
            "", type=["null", "string"], pattern=r"^\s*($|[\[{])", title="Armed crashes (fire drill)", section=FIRE_DRILL,
            description="JSON for CKPT_CRASH: the point at which the driver kills itself. Empty: no crash.",
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
