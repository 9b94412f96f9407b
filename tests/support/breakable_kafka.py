"""A Kafka cluster whose brokers a test may kill, freeze and bring back."""

from __future__ import annotations

import signal

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.announcements import quiet
from airflow_ckpt.local.kafka.cluster import KafkaCluster
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive, send_signal
from tests.support.waiting import wait_for


class BreakableKafka(KafkaCluster):
    """A cluster of the embedded stack, with what tests do to its brokers."""

    def kill(self, node: int) -> None:
        """SIGKILL a broker, as in a power cut."""
        process = self._process(node)
        send_signal(process, signal.SIGKILL)
        wait_for(lambda: not is_alive(process), f"the end of Kafka node {node}", 10)

    def freeze(self, node: int) -> None:
        """SIGSTOP a broker: its connections stay open and nothing answers, as in a long garbage collection."""
        process = self._process(node)
        send_signal(process, signal.SIGSTOP)
        is_stopped = psutil.STATUS_STOPPED
        wait_for(lambda: psutil.Process(process.pid).status() == is_stopped, f"Kafka node {node} to stand still", 10)

    def thaw(self, node: int) -> None:
        """SIGCONT a frozen broker."""
        send_signal(self._process(node), signal.SIGCONT)

    def start_node(self, node: int) -> None:
        """Bring one broker back, with its data, and wait until it answers."""
        with self._locked():
            if not self._wake(self._state().node(node)):
                self._launch(node, quiet)
                self._wait_until_answering([node])

    def _process(self, node: int) -> ProcessId:
        process = self._state().node(node).process
        if process is None or not is_alive(process):
            raise StackError(f"Kafka node {node} does not run: start_node({node}) brings it back")
        return process
