"""The two connections of Airflow that every stream uses by default, to this stack's Kafka and Spark."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow.log_lines import last_line
from airflow_ckpt.local.private_file import replace_private

Connections = Mapping[str, Mapping[str, Any]]


def connections(kafka_config: Mapping[str, str], spark_master: str) -> Connections:
    """Both connections, in the form of `airflow connections import`."""
    return {
        "kafka_default": {"conn_type": "kafka", "extra": dict(kafka_config)},
        "spark_default": {"conn_type": "spark", "host": spark_master, "extra": {"deploy-mode": "client"}},
    }


def digest(wanted: Connections) -> str:
    """A digest that shows whether connections have changed. It does not reveal their passwords."""
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


@contextmanager
def connections_file(home: Path, wanted: Connections) -> Iterator[Path]:
    """Write a file for Airflow's import of connections; it is deleted afterwards, because it holds passwords."""
    file = home / "connections.json"
    replace_private(file, json.dumps(wanted))
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def import_connections(home: Path, wanted: Connections, environment: Mapping[str, str]) -> None:
    """Import the connections into an Airflow that already has a database."""
    with connections_file(home, wanted) as file:
        done = subprocess.run(
            [sys.executable, "-m", "airflow", "connections", "import", str(file), "--overwrite"],
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise StackError(f"Airflow did not import the connections: {last_line(done.stderr or done.stdout)}")
