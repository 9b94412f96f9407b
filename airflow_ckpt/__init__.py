"""Airflow provider that runs PySpark Structured Streaming from Kafka to Kafka exactly once, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: What a DAG needs, by name. Imported at the first use, because Airflow imports this package before its configuration is ready.
_PUBLIC = {
    "Stream": "airflow_ckpt.streams.stream",
    "NoRestart": "airflow_ckpt.streams.restart_strategies",
    "FixedDelay": "airflow_ckpt.streams.restart_strategies",
    "FailureRate": "airflow_ckpt.streams.restart_strategies",
    "ExponentialDelay": "airflow_ckpt.streams.restart_strategies",
    "SparkStreamSubmitOperator": "airflow_ckpt.operators.submit",
    "SparkStreamResumeOperator": "airflow_ckpt.operators.resume",
    "SparkStreamSuperviseOperator": "airflow_ckpt.operators.supervise",
    "SparkStreamStopOperator": "airflow_ckpt.operators.stop",
    "ExactlyOnceVerifyOperator": "airflow_ckpt.operators.verify",
    "CheckpointProgressSensor": "airflow_ckpt.sensors.progress",
    "StreamWebhookNotifier": "airflow_ckpt.notifications.webhook",
    "stream_asset": "airflow_ckpt.assets",
}

__all__ = [
    "CheckpointProgressSensor",
    "ExactlyOnceVerifyOperator",
    "ExponentialDelay",
    "FailureRate",
    "FixedDelay",
    "NoRestart",
    "SparkStreamResumeOperator",
    "SparkStreamStopOperator",
    "SparkStreamSubmitOperator",
    "SparkStreamSuperviseOperator",
    "Stream",
    "StreamWebhookNotifier",
    "__version__",
    "stream_asset",
]

if TYPE_CHECKING:
    from airflow_ckpt.assets import stream_asset
    from airflow_ckpt.notifications.webhook import StreamWebhookNotifier
    from airflow_ckpt.operators.resume import SparkStreamResumeOperator
    from airflow_ckpt.operators.stop import SparkStreamStopOperator
    from airflow_ckpt.operators.submit import SparkStreamSubmitOperator
    from airflow_ckpt.operators.supervise import SparkStreamSuperviseOperator
    from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
    from airflow_ckpt.sensors.progress import CheckpointProgressSensor
    from airflow_ckpt.streams.restart_strategies import ExponentialDelay, FailureRate, FixedDelay, NoRestart
    from airflow_ckpt.streams.stream import Stream


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        from importlib import import_module

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'airflow_ckpt' has no attribute {name!r}")
