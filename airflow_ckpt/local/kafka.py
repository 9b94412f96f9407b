"""A real Kafka on this machine: one broker, or three; plaintext, or also SASL_SSL; and tests may break it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import file_lock, kafka_node, kafka_security, kafka_state
from airflow_ckpt.local.java import find_java
from airflow_ckpt.local.kafka_node import NodeFolder
from airflow_ckpt.local.kafka_security import Security
from airflow_ckpt.local.kafka_state import ClusterState, Node
from airflow_ckpt.local.processes import ProcessId, is_alive, send_signal, stop_tree, wait_until

Report = Callable[[str], None]

# A broker answers in 3 to 5 s; a laptop that is busy with Spark takes several times that.
START_DEADLINE_S = 90.0
# A broker that shuts down in order takes about 1 s. Of three at once, the last finds no quorum to say goodbye to.
STOP_TIMEOUT_S = 15.0


class KafkaCluster:
    """The Kafka cluster that lives in a folder. Every object on the same folder sees and controls the same cluster."""

    def __init__(self, home: Path, *, brokers: int = 1, sasl_ssl: bool = False, base_port: int = 9092) -> None:
        self.home = home.absolute()
        self._brokers = brokers
        self._sasl_ssl = sasl_ssl
        self._base_port = base_port
        self._file = self.home / "cluster.json"
        self._security = Security(self.home / "security")

    @property
    def node_count(self) -> int:
        """How many brokers it has (or will have, before the first start)."""
        state = kafka_state.load(self._file)
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
            raise StackError(f"the Kafka cluster in {self.home} has no SASL_SSL listener: start one with sasl_ssl=True")
        return ",".join(f"127.0.0.1:{node.sasl_port}" for node in state.nodes)

    @property
    def truststore_path(self) -> Path:
        """The PKCS12 truststore with the cluster's CA, for Java clients."""
        return self._security.truststore

    @property
    def truststore_password(self) -> str:
        """The truststore's password."""
        return self._security.truststore_password

    def client_config(self, secure: bool = False, user: str = "app") -> dict[str, str]:
        """What a confluent-kafka client needs to connect; with `secure` over SASL_SSL as `user`."""
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

    def start(self, report: Report | None = None) -> None:
        """Bring all brokers up and wait until they answer. What runs already is left alone."""
        with self._changing(report) as say:
            is_new = not self._file.exists()
            state = self._state_to_start()
            started: list[int] = []
            try:
                for node in state.nodes:
                    if self._wake(node):
                        continue
                    started.append(node.number)
                    self._launch(node.number, say)
                self._wait_until_answering([node.number for node in state.nodes])
            except BaseException:
                self._stop(started)
                if is_new:
                    # Nobody wrote its ports down yet: the next start may choose others.
                    self._file.unlink()
                raise
            if started:
                say(f"Kafka answers on {self.bootstrap}")

    def start_node(self, node: int) -> None:
        """Bring one broker back, with its data, and wait until it answers."""
        with self._changing(None) as say:
            if not self._wake(self._state().node(node)):
                try:
                    self._launch(node, say)
                    self._wait_until_answering([node])
                except BaseException:
                    self._stop([node])
                    raise

    def stop(self) -> None:
        """End all brokers; the data stays."""
        if self._file.exists():
            with self._changing(None):
                self._stop([node.number for node in self._state().nodes])

    def kill(self, node: int) -> None:
        """SIGKILL a broker: no goodbye, as in a power cut."""
        process = self._running(node)
        send_signal(process, signal.SIGKILL)
        wait_until(lambda: not is_alive(process), deadline_s=10, what=f"the end of Kafka node {node}")

    def freeze(self, node: int) -> None:
        """SIGSTOP a broker: its connections stay open and nothing answers, as in a long garbage collection."""
        process = self._running(node)
        send_signal(process, signal.SIGSTOP)
        wait_until(
            lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED,
            deadline_s=10,
            what=f"Kafka node {node} to stand still",
        )

    def thaw(self, node: int) -> None:
        """SIGCONT a frozen broker."""
        send_signal(self._running(node), signal.SIGCONT)

    def status(self) -> dict[str, Any]:
        """What is up, as JSON can hold it."""
        state = kafka_state.load(self._file)
        nodes = [kafka_node.status_of(node) for node in state.nodes] if state else []
        return {
            "running": bool(nodes) and all(node["answering"] for node in nodes),
            "bootstrap": self.bootstrap if state else None,
            "sasl_bootstrap": self.sasl_bootstrap if state and state.sasl_ssl else None,
            "nodes": nodes,
        }

    def log(self, node: int) -> Path:
        """What a broker printed."""
        return self._folder(node).log

    def _state(self) -> ClusterState:
        state = kafka_state.load(self._file)
        if state is None:
            raise StackError(f"there is no Kafka cluster in {self.home} yet: start it first")
        return state

    def _state_to_start(self) -> ClusterState:
        state = kafka_state.load(self._file)
        if state is None:
            state = kafka_state.invent(self._brokers, sasl_ssl=self._sasl_ssl, base_port=self._base_port)
            kafka_state.save(state, self._file)
        if len(state.nodes) != self._brokers or (self._sasl_ssl and not state.sasl_ssl):
            raise StackError(
                f"the Kafka cluster in {self.home} was made with {len(state.nodes)} broker(s) and "
                f"{'a' if state.sasl_ssl else 'no'} SASL_SSL listener, which cannot be changed: "
                f"ask for the same, or `rm -r {self.home}` (its data is lost)"
            )
        return state

    @contextmanager
    def _changing(self, report: Report | None) -> Iterator[Report]:
        """Only one process at a time starts or stops brokers."""
        say = report or (lambda line: None)
        waiting = f"another process is starting or stopping the Kafka in {self.home}: waiting for it"
        with file_lock.exclusive(self.home / "cluster.lock", if_held=lambda: say(waiting)):
            yield say

    def _wake(self, node: Node) -> bool:
        """Whether the node runs already. A frozen one is thawed."""
        if node.process is None or not is_alive(node.process):
            return False
        send_signal(node.process, signal.SIGCONT)
        return True

    def _running(self, node: int) -> ProcessId:
        process = self._state().node(node).process
        if process is None or not is_alive(process):
            raise StackError(f"Kafka node {node} does not run: start_node({node}) brings it back")
        return process

    def _launch(self, number: int, say: Report) -> None:
        state = self._state()
        node, folder = state.node(number), self._folder(number)
        security = kafka_security.create(self._security.folder, _keytool()) if state.sasl_ssl else None
        if not node.formatted:
            say(f"preparing the storage of Kafka node {number}")
            kafka_node.format_storage(node, state, folder, security, say)
            node = self._remember(replace(node, formatted=True))
        say(f"starting Kafka node {number} on port {node.port}")
        self._remember(replace(node, process=kafka_node.launch(node, state, folder, security, say)))

    def _wait_until_answering(self, numbers: Sequence[int]) -> None:
        """Every node given must itself know all of them to be up."""
        expected = set(numbers)
        for number in numbers:
            node = self._state().node(number)

            def outcome(node: Node = node) -> str | None:
                if node.process is None or not is_alive(node.process):
                    return "ended"
                return "answers" if expected <= kafka_node.brokers_seen_by(node) else None

            try:
                reached = wait_until(outcome, deadline_s=START_DEADLINE_S, what=f"Kafka node {number} to answer")
            except StackError as error:
                raise StackError(f"{error}. {self._end_of_log(number)}") from error
            if reached == "ended":
                raise StackError(f"Kafka node {number} ended while it was starting. {self._end_of_log(number)}")

    def _stop(self, numbers: Sequence[int]) -> None:
        processes = [process for number in numbers if (process := self._state().node(number).process)]
        # All of them before any is waited for: a lone survivor of three would wait for a quorum that is gone.
        for process in filter(is_alive, processes):
            send_signal(process, signal.SIGTERM)
        for process in processes:
            stop_tree(process, timeout=STOP_TIMEOUT_S)
        for number in numbers:
            self._remember(replace(self._state().node(number), process=None))

    def _remember(self, node: Node) -> Node:
        kafka_state.save(self._state().with_node(node), self._file)
        return node

    def _folder(self, node: int) -> NodeFolder:
        return NodeFolder(self.home / f"node-{node}")

    def _end_of_log(self, node: int) -> str:
        log = self._folder(node).log
        return f"The end of {log}:\n{kafka_node.tail(log)}"


def _keytool() -> Path:
    return find_java().resolve().with_name("keytool")
