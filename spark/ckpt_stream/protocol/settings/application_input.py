"""What an application is given when it is started: its configuration as JSON, and Kafka's secrets apart from it.

The document comes as the first argument, as a file (``@path``), or in the environment variable ``CKPT_STREAM``. Secrets come
as the Spark property ``spark.ckpt.kafka.secrets`` (in a properties file) or in the environment variable
``CKPT_KAFKA_SECRETS``, each a JSON object of librdkafka settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpt_stream.errors import ConfigError

ENVIRONMENT = "CKPT_STREAM"
SECRETS_ENVIRONMENT = "CKPT_KAFKA_SECRETS"
#: The path of the properties file with the secrets, if the submitter has written one for this driver alone.
SECRETS_FILE_ENVIRONMENT = "CKPT_SECRETS_FILE"
#: "secret" in the name makes Spark redact it in its UI and logs.
SECRETS_PROPERTY = "spark.ckpt.kafka.secrets"


def find_document(argv: Sequence[str]) -> str:
    """The document's text: first argument, ``@file``, or environment."""
    if len(argv) > 1:
        if not argv[1].startswith("@"):
            return argv[1]
        try:
            return Path(argv[1][1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            raise ConfigError(f"The stream's configuration cannot be read from {argv[1][1:]!r}: {e}.") from e
    if text := os.environ.get(ENVIRONMENT):
        return text
    raise ConfigError(
        "No configuration: give the stream's JSON document as first argument, as @file, or in the environment variable "
        f"{ENVIRONMENT}."
    )


def with_secrets(kafka: Mapping[str, Any], property_text: str | None) -> dict[str, Any]:
    """Public librdkafka settings, with the secrets of Spark property and environment added."""
    settings = dict(kafka)
    for source, text in ((SECRETS_PROPERTY, property_text), (SECRETS_ENVIRONMENT, os.environ.get(SECRETS_ENVIRONMENT))):
        if not text:
            continue
        try:
            secrets = json.loads(text)
        except ValueError:
            secrets = None
        if not isinstance(secrets, dict):
            raise ConfigError(f"{source} is not a JSON object of Kafka settings.")
        settings.update(secrets)
    return settings


def delete_secrets_file() -> None:
    """Delete the file with the driver's secrets: spark-submit has read it before it started Python."""
    for name in os.environ.pop(SECRETS_FILE_ENVIRONMENT, "").split(os.pathsep):
        if name:
            Path(name).unlink(missing_ok=True)
