"""What Airflow reads to learn about this provider. Imports nothing: Airflow calls it before it is configured itself."""

from __future__ import annotations

from typing import Any

INTEGRATION = "Spark Structured Streaming"


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
    }
