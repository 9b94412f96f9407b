"""Finds secrets in the declaration of a stream: they would be visible in the DAG's source, the UI and the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_ckpt.streams.templates import names_in, texts_by_path
from ckpt_stream.protocol.settings.secret_names import is_secret, secret_in

#: These settings hold the names of Kubernetes secrets, not secrets.
REFERENCES = ("spark.kubernetes.driver.secretKeyRef.", "spark.kubernetes.driver.secrets.")


def secret_names(mapping: Mapping[str, Any]) -> list[str]:
    """The names in a mapping that are names of secrets."""
    return sorted(name for name in names_in(mapping) if is_secret(name) and not name.startswith(REFERENCES))


def secret_value(declared: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first value that holds a secret: its place, and a description without the secret itself."""
    for path, text in texts_by_path(declared):
        if not path.startswith(tuple(f"spark_conf.{name}" for name in REFERENCES)) and (secret := secret_in(text)):
            return path, secret
    return None
