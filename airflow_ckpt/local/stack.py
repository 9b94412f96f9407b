"""The whole stack of Kafka and Airflow: starts it, stops it, and shows its state."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import airflow_ckpt
from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow.standalone import AirflowStandalone
from airflow_ckpt.local.announcements import Announce, quiet
from airflow_ckpt.local.jars.stack_jars import kafka_broker_jars, spark_kafka_jars
from airflow_ckpt.local.kafka.cluster import KafkaCluster
from airflow_ckpt.local.paths import cache_dir, stack_home
from airflow_ckpt.local.processes import file_lock
from airflow_ckpt.local.processes.interrupts import ignore_interrupts
from airflow_ckpt.local.processes.java import find_java

# Jars, Airflow's database and logs take 0.3 GB; the rest is for topics and checkpoints.
NEEDED_BYTES = 2 * 10**9


def up(
    home: Path,
    *,
    brokers: int | None = None,
    sasl_ssl: bool = False,
    kafka_only: bool = False,
    announce: Announce = quiet,
) -> dict[str, Any]:
    """Start all parts that are not running, and return their addresses. If this fails, the parts that it started are stopped."""
    home = home.absolute()
    find_java()
    for folder in (home, cache_dir()):
        _check_disk(folder)
    with _locked(home, announce):
        home.chmod(0o700)
        kafka_broker_jars(announce=announce)
        if not kafka_only:
            spark_kafka_jars(announce=announce)
        kafka = _kafka_of(home, brokers=brokers, sasl_ssl=sasl_ssl)
        was_running = any(node["alive"] for node in kafka.status()["nodes"])
        try:
            kafka.start(announce=announce)
            if not kafka_only:
                airflow_of(home, kafka).start(announce=announce)
        except BaseException:
            with ignore_interrupts():
                if not was_running:
                    kafka.stop()
            raise
    return _summary(home, kafka)


def down(home: Path, *, announce: Announce = quiet) -> dict[str, Any]:
    """Stop everything. Data and settings stay for the next `up`."""
    home = home.absolute()
    if home.is_dir():
        with _locked(home, announce):
            announce("stopping Airflow")
            airflow_of(home).stop()
            announce("stopping Kafka")
            _kafka_of(home).stop()
    return status(home)


def status(home: Path) -> dict[str, Any]:
    """The processes, their addresses and whether they are healthy. Changes nothing."""
    home = home.absolute()
    kafka = _kafka_of(home).status()
    airflow = airflow_of(home).status()
    return {
        "home": str(home),
        "running": bool(airflow["running"] or any(node["alive"] for node in kafka["nodes"])),
        "kafka": kafka,
        "airflow": airflow,
    }


def project_dags() -> Path | None:
    """The example DAGs, when the package runs from a source checkout."""
    checkout = Path(airflow_ckpt.__file__).parents[1]
    is_checkout = (checkout / "pyproject.toml").is_file() and (checkout / "dags").is_dir()
    return checkout / "dags" if is_checkout else None


def _kafka_of(home: Path, *, brokers: int | None = None, sasl_ssl: bool = False) -> KafkaCluster:
    folder = home / "kafka"
    return KafkaCluster(folder, brokers=brokers or KafkaCluster(folder).node_count, sasl_ssl=sasl_ssl)


def airflow_of(home: Path, kafka: KafkaCluster | None = None) -> AirflowStandalone:
    """The Airflow of this stack; only a start needs its Kafka."""
    kafka_config = kafka.client_config(secure=kafka.status()["sasl_bootstrap"] is not None) if kafka else {}
    return AirflowStandalone(home / "airflow", dags=project_dags(), kafka_config=kafka_config)


@contextmanager
def _locked(home: Path, announce: Announce) -> Iterator[None]:
    """Only one command at a time changes a stack."""
    waiting = f"another command is changing the stack in {home}: waiting for it"
    with file_lock.exclusive(home / "stack.lock", if_held=lambda: announce(waiting)):
        yield


def _check_disk(folder: Path) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < NEEDED_BYTES:
        raise StackError(
            f"only {free / 1e9:.1f} GB free for {folder}, and the stack needs {NEEDED_BYTES / 1e9:.0f} GB: free some, "
            "or set AIRFLOW_CKPT_HOME (data) and AIRFLOW_CKPT_CACHE (downloads) to folders on a larger disk",
            kind="no_room",
        )


def _summary(home: Path, kafka: KafkaCluster) -> dict[str, Any]:
    kafka_status = kafka.status()
    airflow = airflow_of(home)
    summary = {
        "home": str(home),
        "kafka": {name: kafka_status[name] for name in ("bootstrap", "sasl_bootstrap")},
        "airflow": None,
        "next": command(home, "local status"),
        "stop": command(home, "local down"),
    }
    if airflow.is_healthy():
        summary["airflow"] = {"url": airflow.url, "username": airflow.username, "password": airflow.password}
    return summary


def command(home: Path, words: str) -> str:
    """A command that the user can type in this folder: with its path and with --home, if they are needed."""
    program = Path(sys.executable).with_name("airflow-ckpt")
    on_path = shutil.which("airflow-ckpt")
    name = "airflow-ckpt" if on_path and Path(on_path) == program else os.path.relpath(program)
    return f"{name} {words}" if home == stack_home() else f"{name} {words} --home {home}"
