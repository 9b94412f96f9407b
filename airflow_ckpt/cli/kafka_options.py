"""Options that several commands share: the Kafka to connect to, and the form of the output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from airflow_ckpt.exceptions import BadArgument

Bootstrap = Annotated[str | None, typer.Option("--bootstrap", help="Kafka's address, host:port[,host:port].")]
KafkaConfig = Annotated[
    Path | None, typer.Option("--kafka-config", help="JSON file with librdkafka settings (for a secured Kafka).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def kafka_from_options(bootstrap: str | None, config: Path | None) -> dict[str, Any]:
    """The librdkafka settings from the options."""
    settings: dict[str, Any] = {}
    if config is not None:
        try:
            settings = json.loads(config.read_text())
        except (OSError, ValueError) as e:
            raise BadArgument(f"{config} cannot be read as JSON: {e}") from e
    if bootstrap:
        settings["bootstrap.servers"] = bootstrap
    if "bootstrap.servers" not in settings:
        raise BadArgument(
            "Kafka's address is unknown: give --bootstrap host:port, or --kafka-config with a JSON file of settings."
        )
    return settings
