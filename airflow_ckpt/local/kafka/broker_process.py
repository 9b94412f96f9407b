"""One Kafka process: formats its storage, starts it, checks whether it answers, and shows the end of its log if it does not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.announcements import Announce
from airflow_ckpt.local.jars.stack_jars import kafka_broker_jars
from airflow_ckpt.local.kafka.broker_settings import LOG4J, server_properties
from airflow_ckpt.local.kafka.cluster_state import ClusterState, Node
from airflow_ckpt.local.kafka.security import Security
from airflow_ckpt.local.private_file import replace_private
from airflow_ckpt.local.processes.detached import start_detached
from airflow_ckpt.local.processes.java import find_java
from airflow_ckpt.local.processes.ports import can_bind
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive

# A broker on this machine answers within milliseconds.
ANSWER_TIMEOUT_SECONDS = 2.0
LINES_OF_LOG_SHOWN = 15
# Enough for a test or a demo, and small enough for three brokers on a laptop.
_BROKER = ("-Xms128m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError")
# For a program that runs for a second: without the optimising compiler it takes half the time.
_SHORT_RUN = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True)
class NodeFolder:
    """The folder with the settings, data and log of one node."""

    path: Path

    @property
    def data(self) -> Path:
        """Kafka's own files."""
        return self.path / "data"

    @property
    def log(self) -> Path:
        """The output of the process."""
        return self.path / "server.log"

    @property
    def properties(self) -> Path:
        """The settings of the process."""
        return self.path / "server.properties"

    @property
    def log4j(self) -> Path:
        """The settings of its logging."""
        return self.path / "log4j2.properties"


def format_storage(
    node: Node, cluster: ClusterState, folder: NodeFolder, security: Security | None, announce: Announce
) -> None:
    """Format the node's storage with the id and the users of the cluster."""
    shutil.rmtree(folder.data, ignore_errors=True)
    _write_settings(node, cluster, folder, security)
    argv = [*_java(_SHORT_RUN, folder, announce), "kafka.tools.StorageTool", "format"]
    argv += ["--cluster-id", cluster.cluster_id, "--config", str(folder.properties)]
    users = folder.path / "users.args"
    if security:
        replace_private(users, security.scram_arguments())
        argv.append(f"@{users}")
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    finally:
        users.unlink(missing_ok=True)
    if done.returncode != 0:
        raise StackError(
            f"Kafka node {node.number} could not format its storage: {(done.stdout + done.stderr).strip()}"
        )


def launch(
    node: Node, cluster: ClusterState, folder: NodeFolder, security: Security | None, announce: Announce
) -> ProcessId:
    """Start the node's process; it may take seconds until it answers."""
    for port in node.ports:
        if not can_bind(port):
            raise StackError(
                f"port {port} of Kafka node {node.number} is taken by {_owner_of(port)}: end that process, "
                f"or `rm -r {folder.path.parent}` to start on other ports (its data is lost)"
            )
    _write_settings(node, cluster, folder, security)
    argv = [*_java(_BROKER, folder, announce), "kafka.Kafka", str(folder.properties)]
    return start_detached(argv, log=folder.log, cwd=folder.path)


def brokers_seen_by(node: Node, timeout: float = ANSWER_TIMEOUT_SECONDS) -> set[int]:
    """The brokers that are up according to this node; empty if it does not answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # It is normal that a broker does not answer yet, so librdkafka must not print an error.
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": f"127.0.0.1:{node.port}",
        "log_level": 0,
        "reconnect.backoff.max.ms": 200,
    }
    try:
        return set(AdminClient(settings).list_topics(timeout=timeout).brokers)
    except KafkaException:
        return set()


def status_of(node: Node) -> dict[str, Any]:
    """One node's line of the cluster's status."""
    alive = node.process is not None and is_alive(node.process)
    return {
        "node": node.number,
        "pid": node.process.pid if node.process else None,
        "alive": alive,
        "answering": alive and node.number in brokers_seen_by(node),
        "port": node.port,
        "sasl_port": node.sasl_port,
    }


def tail(log: Path) -> str:
    """The last lines of a log, for an error message."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return "\n".join(lines[-LINES_OF_LOG_SHOWN:])


def _java(options: Sequence[str], folder: NodeFolder, announce: Announce) -> list[str]:
    classpath = f"{kafka_broker_jars(announce)}/*"
    return [str(find_java()), *options, f"-Dlog4j2.configurationFile={folder.log4j}", "-cp", classpath]


def _write_settings(node: Node, cluster: ClusterState, folder: NodeFolder, security: Security | None) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    replace_private(folder.properties, server_properties(node, cluster, folder.data, security))
    folder.log4j.write_text(LOG4J)


def _owner_of(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return f"another program (`lsof -i :{port}` names it)"
