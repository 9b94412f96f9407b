"""What Airflow's database keeps of the provider: deferred tasks, serialised DAGs, assets, and what tasks note there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from airflow.sdk import DAG
from airflow.sdk.exceptions import TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization

from airflow_ckpt.assets import stream_asset
from airflow_ckpt.get_provider_info import get_provider_info
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.notifications.webhook import StreamWebhookNotifier
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.resume import SparkStreamResumeOperator
from airflow_ckpt.operators.stop import SparkStreamStopOperator
from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
from airflow_ckpt.operators.supervise import SparkStreamSuperviseOperator
from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
from airflow_ckpt.sensors.progress import CheckpointProgressSensor
from airflow_ckpt.streams.restart_strategies import FixedDelay
from airflow_ckpt.streams.status import StreamStatus
from tests.airflow_ckpt.operators.fakes import LATER, NOW, FakeControl, a_context, event, make
from tests.airflow_ckpt.supervision.samples import a_lag, a_status, a_stream

#: A status with everything in it.
RUNNING = a_status(
    "RUNNING", run="20261117T120000.000000-1a2b3c", token="1a2b3c", started="2026-11-17T12:00:00.000+00:00",
    reason="commits", batch=4, batches_in_run=5, offsets={"orders_in": {"0": 97, "1": 98}}, age_seconds=1.5,
    last_commit="2026-11-17T12:01:00.000+00:00", rows_per_second=200.0, lag_records=5, lag_seconds=0.5,
    partitions=a_lag(3, 2, seconds=0.5), ui="http://worker-1.example:4040", log="/opt/streams/work/1a2b3c/driver.log",
    driver={"state": "RUNNING", "detail": "process 71"}, stop={"by": "ann", "reason": "", "run": None},
)  # fmt: skip


class Deferrals:
    """Lets operators defer, and keeps what Airflow would store: the trigger, the method to go on with, and the event."""

    def __init__(self) -> None:
        self.stored: list[dict[str, Any]] = []

    def by(
        self, operator: Any, call: Callable[[], Any], status: StreamStatus | None, outcome: str = "reached"
    ) -> dict[str, Any]:
        """The event that the operator is woken with when the trigger has seen this status."""
        try:
            call()
        except TaskDeferred as deferred:
            trigger: Any = deferred.trigger
            path, kwargs = json.loads(json.dumps(trigger.serialize()))
            fired = event(trigger, status, outcome)
            self.stored.append(
                {
                    "operator": f"{type(operator).__module__}.{type(operator).__qualname__}",
                    "method": deferred.method_name,
                    "trigger": path,
                    "kwargs": kwargs,
                    "event": fired,
                }
            )
            return fired
        raise AssertionError("the operator did not defer")


@contextmanager
def playing(control: Any, **plans: Any) -> Iterator[None]:
    """Whoever connects to a stream gets this control."""
    with patch.object(StreamHook, "get_conn", lambda self: control):
        yield


def fake(*statuses: StreamStatus | str, plans: Any = ()) -> FakeControl:
    control = FakeControl(*statuses)
    control.plans = list(plans)
    return control


def deferred_tasks() -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """Every wait of every operator but the verification's; then a task's state store and its XComs."""
    kept, context = Deferrals(), a_context()
    started, ended = RUNNING, a_status("STOPPED")
    submit = make(SparkStreamSubmitOperator, wait_for="first_batch", deferrable=True, timeout="1 hour")
    with playing(fake("STARTING")):
        fired = kept.by(submit, lambda: submit.execute(context), started)
        kept.by(submit, lambda: submit.on_event(context, fired), started)

    resume = make(SparkStreamResumeOperator, deferrable=True, on_kill_action="kill")
    with playing(fake("FAILED", plans=[LATER])):
        fired = kept.by(resume, lambda: resume.execute(context), None)
    with playing(fake("FAILED", "STARTING", plans=[NOW])):
        kept.by(resume, lambda: resume.on_event(context, fired), started)

    supervise = make(
        SparkStreamSuperviseOperator, until="drained", when_done="stop", deferrable=True, on_kill_action="stop"
    )
    with playing(fake("RUNNING")):
        fired = kept.by(supervise, lambda: supervise.execute(context), a_status("FAILED"), "failed")
    with playing(fake("FAILED", plans=[LATER])):
        fired = kept.by(supervise, lambda: supervise.on_event(context, fired), None)
    with playing(fake("FAILED", "STARTING", plans=[NOW])):
        fired = kept.by(supervise, lambda: supervise.on_event(context, fired), started)
    with playing(fake("RUNNING")):
        kept.by(supervise, lambda: supervise.on_event(context, fired), ended)

    stop = make(SparkStreamStopOperator, deferrable=True)
    with playing(fake("RUNNING")):
        kept.by(stop, lambda: stop.execute(context), ended)

    sensor = make(
        CheckpointProgressSensor, batches=9, batch=9, offsets={"orders_in": {"0": 99}}, max_lag=0, deferrable=True
    )
    with playing(fake("RUNNING")):
        kept.by(sensor, lambda: sensor.execute(context), started)
    return kept.stored, dict(context["task_state_store"]), dict(context["ti"].pushed)


def serialised_dag() -> dict[str, Any]:
    """A DAG with every operator, as the scheduler and the web server read it."""
    stream = a_stream(restart=FixedDelay(3, timedelta(seconds=10)), checkpoint="file:///data/{{ params.x }}")
    tell = StreamWebhookNotifier("alerts")
    operators: list[tuple[type[StreamOperator], dict[str, Any]]] = [
        (SparkStreamSubmitOperator, {"wait_for": "first_batch", "notify": tell}),
        (SparkStreamResumeOperator, {"allow": ["data_lost"]}),
        (SparkStreamSuperviseOperator, {"until": timedelta(hours=1)}),
        (SparkStreamStopOperator, {"kill_after": "1 minute"}),
        (CheckpointProgressSensor, {"batches": "{{ params.n }}"}),
        (ExactlyOnceVerifyOperator, {"depth": "{{ params.depth }}"}),
    ]
    with DAG("orders", schedule=None) as dag:
        for kind, values in operators:
            kind(task_id=kind.__name__, stream=stream, deferrable=True, timeout=timedelta(minutes=1), **values)
    document: dict[str, Any] = DagSerialization.to_dict(dag)
    return document


def others() -> dict[str, Any]:
    asset = stream_asset(a_stream())
    return {
        "provider": get_provider_info(),
        "asset": {
            "stream": a_stream().as_dict(),
            "name": asset.name,
            "uri": asset.uri,
            "group": asset.group,
        },
    }
