"""The identity, ports and processes of a local Kafka cluster, kept between commands in `cluster.json`."""

from __future__ import annotations

import base64
import json
import os
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.ports import free_ports
from airflow_ckpt.local.processes.process_id import ProcessId


@dataclass(frozen=True)
class Node:
    """One broker, which is also a controller. Its ports never change, because clients store them."""

    number: int
    port: int
    controller_port: int
    sasl_port: int | None
    formatted: bool = False
    process: ProcessId | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of the node."""
        return tuple(port for port in (self.port, self.controller_port, self.sasl_port) if port is not None)


@dataclass(frozen=True)
class ClusterState:
    """A cluster and its nodes."""

    cluster_id: str
    nodes: tuple[Node, ...]

    @property
    def sasl_ssl(self) -> bool:
        """Whether the nodes have a SASL_SSL listener."""
        return all(node.sasl_port is not None for node in self.nodes)

    def node(self, number: int) -> Node:
        """The node with this number, counted from 1."""
        for node in self.nodes:
            if node.number == number:
                return node
        raise StackError(f"there is no Kafka node {number}: this cluster has nodes 1 to {len(self.nodes)}")

    def with_node(self, changed: Node) -> ClusterState:
        """The same cluster with one node replaced."""
        return replace(self, nodes=tuple(changed if node.number == changed.number else node for node in self.nodes))


def new_cluster(brokers: int, *, sasl_ssl: bool, base_port: int) -> ClusterState:
    """A new cluster on the usual ports (9092 clients, 9093 controllers, 9094 SASL_SSL), or on other ports if they are taken."""
    ports = iter(free_ports(range(base_port, base_port + 3 * brokers)))
    nodes = []
    for number in range(1, brokers + 1):
        port, controller_port, sasl_port = next(ports), next(ports), next(ports)
        nodes.append(Node(number, port, controller_port, sasl_port if sasl_ssl else None))
    # Kafka's form of an id: 16 bytes in base 64. A leading dash would look like an option.
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22].replace("-", "A")
    return ClusterState(cluster_id, tuple(nodes))


def load(file: Path) -> ClusterState | None:
    """The cluster that the file describes; None if there is none yet."""
    try:
        stored = json.loads(file.read_text())
        return ClusterState(stored["cluster_id"], tuple(_node(entry) for entry in stored["nodes"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StackError(
            f"{file} is damaged ({error}): `rm -r {file.parent}` and start again (its data is lost)"
        ) from error


def save(state: ClusterState, file: Path) -> None:
    """Write the file in one step: after a crash during the write, the old file still exists."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(state), indent=1))
    os.replace(draft, file)


def _node(entry: dict[str, Any]) -> Node:
    process = entry.pop("process")
    return Node(**entry, process=ProcessId.from_dict(process) if process else None)
