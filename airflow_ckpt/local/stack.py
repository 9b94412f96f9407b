"""The whole stack, Kafka and Airflow, as one thing that is up or down."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import airflow_ckpt
from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import file_lock
from airflow_ckpt.local.airflow import AirflowStandalone
from airflow_ckpt.local.interrupts import undisturbed
from airflow_ckpt.local.jars import kafka_broker_jars, spark_kafka_jars
from airflow_ckpt.local.java import find_java
from airflow_ckpt.local.kafka import KafkaCluster
from airflow_ckpt.local.paths import cache_dir, stack_home

Report = Callable[[str], None]

# Jars, Airflow's database and logs take 0.3 GB; the rest is for the topics and checkpoints of an afternoon.
NEEDED_BYTES = 2 * 10**9


def up(
    home: Path,
    *,
    brokers: int | None = None,
    sasl_ssl: bool = False,
    kafka_only: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Bring up what is not up yet and say where it is. After a failure, what this call started is down again."""
    say = report or _say_nothing
    home = home.absolute()
    find_java()
    for folder in (home, cache_dir()):
        _check_disk(folder)
    with _changing(home, say):
        home.chmod(0o700)
        kafka_broker_jars(report=report)
        if not kafka_only:
            spark_kafka_jars(report=report)
        kafka = _kafka(home, brokers=brokers, sasl_ssl=sasl_ssl)
        was_running = any(node["alive"] for node in kafka.status()["nodes"])
        try:
            kafka.start(report=report)
            if not kafka_only:
                _airflow(home, kafka).start(report=report)
        except BaseException:
            with undisturbed():
                if not was_running:
                    kafka.stop()
            raise
    return _summary(home, kafka)


def down(home: Path, *, report: Report | None = None) -> dict[str, Any]:
    """Stop everything. Data and settings stay for the next `up`."""
    say = report or _say_nothing
    home = home.absolute()
    if home.is_dir():
        with _changing(home, say):
            say("stopping Airflow")
            _airflow(home).stop()
            say("stopping Kafka")
            _kafka(home).stop()
    return status(home)


def status(home: Path) -> dict[str, Any]:
    """What runs, where, and how it feels. Changes nothing."""
    home = home.absolute()
    kafka = _kafka(home).status()
    airflow = _airflow(home).status()
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


def _kafka(home: Path, *, brokers: int | None = None, sasl_ssl: bool = False) -> KafkaCluster:
    folder = home / "kafka"
    return KafkaCluster(folder, brokers=brokers or KafkaCluster(folder).node_count, sasl_ssl=sasl_ssl)


def _airflow(home: Path, kafka: KafkaCluster | None = None) -> AirflowStandalone:
    """The Airflow of this stack; Kafka matters only to a start."""
    kafka_config = kafka.client_config(secure=kafka.status()["sasl_bootstrap"] is not None) if kafka else {}
    return AirflowStandalone(home / "airflow", dags=project_dags(), kafka_config=kafka_config)


@contextmanager
def _changing(home: Path, say: Report) -> Iterator[None]:
    """Only one command at a time changes a stack."""
    waiting = f"another command is changing the stack in {home}: waiting for it"
    with file_lock.exclusive(home / "stack.lock", if_held=lambda: say(waiting)):
        yield


def _check_disk(folder: Path) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < NEEDED_BYTES:
        raise StackError(
            f"only {free / 1e9:.1f} GB free for {folder}, and the stack needs {NEEDED_BYTES / 1e9:.0f} GB: free some, "
            "or set AIRFLOW_CKPT_HOME (data) and AIRFLOW_CKPT_CACHE (downloads) to folders on a larger disk"
        )


def _summary(home: Path, kafka: KafkaCluster) -> dict[str, Any]:
    kafka_status = kafka.status()
    airflow = _airflow(home)
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
    """A command as the user can type it here and now: with its path and with the home, if they are needed."""
    program = Path(sys.executable).with_name("airflow-ckpt")
    on_path = shutil.which("airflow-ckpt")
    name = "airflow-ckpt" if on_path and Path(on_path) == program else os.path.relpath(program)
    return f"{name} {words}" if home == stack_home() else f"{name} {words} --home {home}"


def _say_nothing(line: str) -> None:
    """The report of a caller that wants none."""
