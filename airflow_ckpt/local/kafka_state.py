"""What a local Kafka cluster remembers between commands: its identity, ports and processes, in `cluster.json`."""

from __future__ import annotations

import base64
import json
import os
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes import ProcessId, free_port


@dataclass(frozen=True)
class Node:
    """One broker, which is also a controller. Its ports stay the same for life: clients wrote them down."""

    number: int
    port: int
    controller_port: int
    sasl_port: int | None
    formatted: bool = False
    process: ProcessId | None = None

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports it listens on."""
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
        """The same cluster with one node's entry renewed."""
        return replace(self, nodes=tuple(changed if node.number == changed.number else node for node in self.nodes))


def invent(brokers: int, *, sasl_ssl: bool, base_port: int) -> ClusterState:
    """A new cluster on the usual ports (9092 clients, 9093 controllers, 9094 SASL_SSL), or on free ones instead."""
    chosen: set[int] = set()

    def choose(preferred: int) -> int:
        port = free_port(preferred)
        while port in chosen:
            port = free_port()
        chosen.add(port)
        return port

    nodes = []
    for number in range(1, brokers + 1):
        first = base_port + 3 * (number - 1)
        sasl_port = choose(first + 2) if sasl_ssl else None
        nodes.append(Node(number, port=choose(first), controller_port=choose(first + 1), sasl_port=sasl_port))
    # Kafka's form of an id: 16 bytes in base 64. A leading dash would look like an option.
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22].replace("-", "A")
    return ClusterState(cluster_id, tuple(nodes))


def load(file: Path) -> ClusterState | None:
    """What the file remembers; None if there is no cluster yet."""
    try:
        kept = json.loads(file.read_text())
        return ClusterState(kept["cluster_id"], tuple(_node(entry) for entry in kept["nodes"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StackError(
            f"{file} is damaged ({error}): `rm -r {file.parent}` and start again (its data is lost)"
        ) from error


def save(state: ClusterState, file: Path) -> None:
    """Remember it. A crash in between leaves the former state."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(asdict(state), indent=1))
    os.replace(draft, file)


def _node(entry: dict[str, Any]) -> Node:
    process = entry.pop("process")
    return Node(**entry, process=ProcessId.from_dict(process) if process else None)
