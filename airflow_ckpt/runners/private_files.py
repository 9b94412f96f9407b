"""What a driver is given in files that only their owner can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckpt_stream.config import SECRETS_PROPERTY
from ckpt_stream.security import is_secret

SECRETS_FILE = "secrets.conf"


def write_private(path: Path, text: str) -> None:
    """Write a new file; nobody but its owner can read it at any moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def write_secrets(folder: Path, kafka: Mapping[str, Any]) -> list[str]:
    """The secret ones of Kafka's settings as a properties file for spark-submit; no file where there are none."""
    secrets = {name: value for name, value in kafka.items() if is_secret(name)}
    if not secrets:
        return []
    path = folder / SECRETS_FILE
    # In a properties file the backslash is the escape character.
    value = json.dumps(secrets).replace("\\", "\\\\")
    write_private(path, f"{SECRETS_PROPERTY}={value}\n")
    return [str(path)]
