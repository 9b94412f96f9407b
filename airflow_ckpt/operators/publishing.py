"""Publishes the status of a stream: in the Spark UI link, the task state store, the asset's event and metrics."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.assets import has_asset, stream_asset
from airflow_ckpt.links.spark_ui import SparkUiLink
from airflow_ckpt.metrics import report
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream

#: The keys of the task state store: the stream's last status, and its states so far.
STATUS_KEY, HISTORY_KEY = "ckpt_status", "ckpt_history"
KEEP_HISTORY = 100


def publish_status(context: Any, stream: Stream, status: StreamStatus) -> None:
    """Publish the stream's status in every way that this version of Airflow supports."""
    if status.ui:
        context["ti"].xcom_push(key=SparkUiLink.xcom_key, value=status.ui)
    if (store := context.get("task_state_store")) is not None:
        summary = {"state": status.state, "time": status.time, "batch": status.batch, "reason": status.reason}
        history = list(store.get(HISTORY_KEY, []))
        if not history or history[-1]["state"] != status.state:
            store.set(HISTORY_KEY, [*history, summary][-KEEP_HISTORY:])
        store.set(STATUS_KEY, {**status.as_dict(), "partitions": []})
    add_to_asset_event(context, stream, batch=status.batch, offsets=dict(status.offsets), state=status.state)
    report(status)


def add_to_asset_event(context: Any, stream: Stream, **extra: Any) -> None:
    """Add to the extra field of the event that this task sends for the stream's asset."""
    if has_asset(stream) and (events := context.get("outlet_events")) is not None:
        events[stream_asset(stream)].extra.update(extra)
