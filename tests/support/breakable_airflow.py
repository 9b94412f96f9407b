"""An Airflow whose components a test may kill: `airflow standalone` does not restart them itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from airflow_ckpt.local.airflow import health
from airflow_ckpt.local.airflow.component_processes import COMPONENTS, owned
from airflow_ckpt.local.airflow.standalone import HEALTH_POLL_SECONDS, START_DEADLINE_SECONDS, AirflowStandalone
from airflow_ckpt.local.processes.detached import start_detached
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive
from airflow_ckpt.local.processes.waiting import wait_for

#: The components that have a log server, and the name of its port. It is a child of the component.
LOG_PORTS = {"scheduler": "worker_logs", "triggerer": "triggerer_logs"}


class BreakableAirflow(AirflowStandalone):
    """An Airflow of the embedded stack that can start a killed component again."""

    def __init__(self, home: Path, *, dags: Path, port: int, kafka_config: Mapping[str, str]) -> None:
        super().__init__(home, dags=dags, port=port, kafka_config=kafka_config)
        #: The components that were started again, by name, each in a session of its own.
        self._restarted: list[tuple[str, ProcessId]] = []

    def sessions(self) -> list[ProcessId]:
        return [*super().sessions(), *(process for _, process in self._restarted)]

    def component_pids(self) -> dict[str, int]:
        restarted = {name: process.pid for name, process in self._restarted if is_alive(process)}
        return {**super().component_pids(), **restarted}

    def restart_component(self, name: str) -> int:
        """Start a component that was killed, wait until it is healthy, and return its pid."""
        assert name in COMPONENTS, name
        running = self.component_pids()
        assert name not in running, f"the {name} runs as pid {running[name]}: kill it before you restart it"
        if name in LOG_PORTS:
            free_own_port(self.home, self.sessions(), getattr(self.ports, LOG_PORTS[name]))
        since = time.time()
        argv = [sys.executable, "-m", "airflow", name]
        process = start_detached(argv, log=self.log, env=self.environment(), cwd=self.home)
        self._restarted.append((name, process))
        monitored = () if name == "api-server" else (name.replace("-", "_"),)

        def is_healthy() -> bool:
            assert is_alive(process), f"the {name} ended while it started: see {self.log}"
            return health.is_healthy(self.api.health(), since=since, monitored=monitored)

        wait_for(is_healthy, f"Airflow's {name} to be healthy again", START_DEADLINE_SECONDS, pause=HEALTH_POLL_SECONDS)
        return process.pid


def free_own_port(home: Path, sessions: Collection[ProcessId], port: int) -> None:
    """End the process of ours that still listens on a port: the log server outlives a killed scheduler or triggerer."""
    listeners = [process for process in owned(home, sessions) if _listens(process, port)]
    for process in listeners:
        process.kill()
    psutil.wait_procs(listeners, timeout=5)


def _listens(process: psutil.Process, port: int) -> bool:
    try:
        connections = process.net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port for c in connections)
