"""A real Kafka on this machine: one broker or several, with a plaintext listener and, optionally, a SASL_SSL listener."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.announcements import Announce, quiet
from airflow_ckpt.local.kafka import broker_process, cluster_state, security
from airflow_ckpt.local.kafka.broker_process import NodeFolder
from airflow_ckpt.local.kafka.cluster_state import ClusterState, Node
from airflow_ckpt.local.kafka.security import Security
from airflow_ckpt.local.processes import file_lock
from airflow_ckpt.local.processes.detached import stop_tree
from airflow_ckpt.local.processes.process_id import is_alive, send_signal
from airflow_ckpt.local.processes.waiting import wait_for

# A broker answers after 3 to 5 s, and on a laptop that is busy with Spark after several times that.
START_DEADLINE_SECONDS = 90.0
# An orderly shutdown takes about 1 s. If three brokers shut down at once, the last one waits for a quorum that no longer exists.
STOP_TIMEOUT_SECONDS = 15.0


class KafkaCluster:
    """The Kafka cluster of a folder. All objects with the same folder control the same cluster."""

    def __init__(self, home: Path, *, brokers: int = 1, sasl_ssl: bool = False, base_port: int = 9092) -> None:
        self.home = home.absolute()
        self._brokers = brokers
        self._sasl_ssl = sasl_ssl
        self._base_port = base_port
        self._file = self.home / "cluster.json"
        self._security = Security(self.home / "security")

    @property
    def node_count(self) -> int:
        """The number of brokers (before the first start, the number that it will have)."""
        state = cluster_state.load(self._file)
        return len(state.nodes) if state else self._brokers

    @property
    def bootstrap(self) -> str:
        """The plaintext addresses, comma separated."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self._state().nodes)

    @property
    def sasl_bootstrap(self) -> str:
        """The SASL_SSL addresses, comma separated."""
        state = self._state()
        if not state.sasl_ssl:
            raise StackError(
                f"the Kafka cluster in {self.home} has no SASL_SSL listener: start one with sasl_ssl=True",
                kind="no_sasl_ssl",
            )
        return ",".join(f"127.0.0.1:{node.sasl_port}" for node in state.nodes)

    def client_config(self, secure: bool = False, user: str = "app") -> dict[str, str]:
        """The settings with which a confluent-kafka client connects; with `secure`, over SASL_SSL as `user`."""
        if not secure:
            return {"bootstrap.servers": self.bootstrap, "security.protocol": "PLAINTEXT"}
        return {
            "bootstrap.servers": self.sasl_bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self._security.password(user),
            "ssl.ca.location": str(self._security.ca),
        }

    def start(self, announce: Announce = quiet) -> None:
        """Start all brokers that are not running, and wait until all of them answer."""
        with self._locked(announce):
            is_new = not self._file.exists()
            state = self._state_to_start()
            started: list[int] = []
            try:
                for node in state.nodes:
                    if self._wake(node):
                        continue
                    started.append(node.number)
                    self._launch(node.number, announce)
                self._wait_until_answering([node.number for node in state.nodes])
            except BaseException:
                self._stop(started)
                if is_new:
                    # No client has used the ports of a new cluster yet, so the next start may choose other ports.
                    self._file.unlink()
                raise
            if started:
                announce(f"Kafka answers on {self.bootstrap}")

    def stop(self) -> None:
        """End all brokers; the data stays."""
        if self._file.exists():
            with self._locked():
                self._stop([node.number for node in self._state().nodes])

    def status(self) -> dict[str, Any]:
        """The state of the brokers, as JSON values."""
        state = cluster_state.load(self._file)
        nodes = [broker_process.status_of(node) for node in state.nodes] if state else []
        return {
            "running": bool(nodes) and all(node["answering"] for node in nodes),
            "bootstrap": self.bootstrap if state else None,
            "sasl_bootstrap": self.sasl_bootstrap if state and state.sasl_ssl else None,
            "nodes": nodes,
        }

    def _state(self) -> ClusterState:
        state = cluster_state.load(self._file)
        if state is None:
            raise StackError(f"there is no Kafka cluster in {self.home} yet: start it first", kind="not_made")
        return state

    def _state_to_start(self) -> ClusterState:
        state = cluster_state.load(self._file)
        if state is None:
            state = cluster_state.new_cluster(self._brokers, sasl_ssl=self._sasl_ssl, base_port=self._base_port)
            cluster_state.save(state, self._file)
        if len(state.nodes) != self._brokers or (self._sasl_ssl and not state.sasl_ssl):
            raise StackError(
                f"the Kafka cluster in {self.home} was created with {len(state.nodes)} broker(s) and "
                f"{'a' if state.sasl_ssl else 'no'} SASL_SSL listener, which cannot be changed: "
                f"ask for the same, or `rm -r {self.home}` (its data is lost)",
                kind="other_cluster",
            )
        return state

    @contextmanager
    def _locked(self, announce: Announce = quiet) -> Iterator[None]:
        """Only one process at a time starts or stops brokers."""
        waiting = f"another process is starting or stopping the Kafka in {self.home}: waiting for it"
        with file_lock.exclusive(self.home / "cluster.lock", if_held=lambda: announce(waiting)):
            yield

    def _wake(self, node: Node) -> bool:
        """Whether the node is already running; if it was paused by SIGSTOP, it is continued."""
        if node.process is None or not is_alive(node.process):
            return False
        send_signal(node.process, signal.SIGCONT)
        return True

    def _launch(self, number: int, announce: Announce) -> None:
        state = self._state()
        node, folder = state.node(number), self._folder(number)
        credentials = security.create(self._security.folder) if state.sasl_ssl else None
        if not node.formatted:
            announce(f"preparing the storage of Kafka node {number}")
            broker_process.format_storage(node, state, folder, credentials, announce)
            node = self._remember(replace(node, formatted=True))
        announce(f"starting Kafka node {number} on port {node.port}")
        self._remember(replace(node, process=broker_process.launch(node, state, folder, credentials, announce)))

    def _wait_until_answering(self, numbers: Sequence[int]) -> None:
        """Wait until each of these nodes reports all of them as up."""
        expected = set(numbers)
        for number in numbers:
            node = self._state().node(number)

            def outcome(node: Node = node) -> str | None:
                if node.process is None or not is_alive(node.process):
                    return "ended"
                return "answers" if expected <= broker_process.brokers_seen_by(node) else None

            try:
                reached = wait_for(outcome, f"Kafka node {number} to answer", START_DEADLINE_SECONDS)
            except StackError as error:
                raise StackError(f"{error}. {self._end_of_log(number)}") from error
            if reached == "ended":
                raise StackError(
                    f"Kafka node {number} ended while it was starting. {self._end_of_log(number)}", kind="node_ended"
                )

    def _stop(self, numbers: Sequence[int]) -> None:
        processes = [process for number in numbers if (process := self._state().node(number).process)]
        # SIGTERM goes to all brokers before any wait: otherwise the last of three would wait for a quorum that no longer exists.
        for process in filter(is_alive, processes):
            send_signal(process, signal.SIGTERM)
        for process in processes:
            stop_tree(process, timeout=STOP_TIMEOUT_SECONDS)
        for number in numbers:
            self._remember(replace(self._state().node(number), process=None))

    def _remember(self, node: Node) -> Node:
        cluster_state.save(self._state().with_node(node), self._file)
        return node

    def _folder(self, node: int) -> NodeFolder:
        return NodeFolder(self.home / f"node-{node}")

    def _end_of_log(self, node: int) -> str:
        log = self._folder(node).log
        return f"The end of {log}:\n{broker_process.tail(log)}"
