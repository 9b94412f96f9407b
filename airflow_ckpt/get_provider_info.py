"""Describes this provider to Airflow. Imports nothing, because Airflow calls it before its own configuration is ready."""

from __future__ import annotations

from typing import Any

INTEGRATION = "Spark Structured Streaming"


def _modules(kind: str, *names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_ckpt.{kind}.{name}" for name in names]
    return [{"integration-name": INTEGRATION, "python-modules": modules}]


def _option(description: str, kind: str, default: str, example: str | None = None) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": example,
        "default": default,
    }


def get_provider_info() -> dict[str, Any]:
    """Describe the provider in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-ckpt",
        "name": "Structured Streaming Checkpoints",
        "description": "Runs PySpark Structured Streaming from Kafka to Kafka exactly once, and proves it.",
        "integrations": [
            {
                "integration-name": INTEGRATION,
                "external-doc-url": "https://spark.apache.org/docs/latest/streaming/index.html",
                "tags": ["software"],
            },
        ],
        "operators": _modules("operators", "submit", "resume", "supervise", "stop", "verify"),
        "sensors": _modules("sensors", "progress"),
        "hooks": _modules("hooks", "stream"),
        "triggers": _modules("triggers", "progress"),
        "notifications": ["airflow_ckpt.notifications.webhook.StreamWebhookNotifier"],
        "extra-links": ["airflow_ckpt.links.spark_ui.SparkUiLink"],
        "config": {
            "airflow_ckpt": {
                "description": "Streams: where drivers run, which files they get, and how often their status is checked.",
                "options": {
                    "work_folder": _option(
                        "Folder for drivers that run on this machine (log, configuration, exit status). "
                        "Empty: `airflow_ckpt` below AIRFLOW_HOME.",
                        "string",
                        "",
                        "/var/lib/airflow/streams",
                    ),
                    "applications_folder": _option(
                        "Where a relative `application` of a stream is looked for. Empty: the DAGs folder, then its parent.",
                        "string",
                        "",
                        "/opt/streams",
                    ),
                    "spark_jars": _option(
                        "Jars of Spark's Kafka connector, separated by commas, with wildcards. Empty: Spark downloads the "
                        "connector of its own version.",
                        "string",
                        "",
                        "/opt/spark-kafka/*.jar",
                    ),
                    "poll_interval": _option("Seconds between two checks of a stream.", "float", "10"),
                },
            }
        },
    }
