"""Reads what an application is given when it is started, from its arguments, the environment and files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.settings.input_names import (
    ENVIRONMENT,
    SECRETS_ENVIRONMENT,
    SECRETS_FILE_ENVIRONMENT,
    SECRETS_PROPERTY,
)


def find_document(argv: Sequence[str]) -> str:
    """The text of the document, from the first argument, ``@file`` or the environment."""
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
    """The public librdkafka settings, plus the secrets from the Spark property or the environment."""
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
    """Delete the file with the driver's secrets; spark-submit has read it before it started Python."""
    for name in os.environ.pop(SECRETS_FILE_ENVIRONMENT, "").split(os.pathsep):
        if name:
            Path(name).unlink(missing_ok=True)
