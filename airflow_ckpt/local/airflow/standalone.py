"""A whole Airflow on this machine, `airflow standalone`, with its own home, database, ports and processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow import airflow_state, component_processes, health, home_files, stack_connections
from airflow_ckpt.local.airflow.airflow_state import AirflowState
from airflow_ckpt.local.airflow.component_processes import COMPONENTS
from airflow_ckpt.local.airflow.home_files import HOST, USERNAME, Ports
from airflow_ckpt.local.airflow.log_lines import last_line_of
from airflow_ckpt.local.airflow.rest_api import AirflowApi
from airflow_ckpt.local.announcements import Announce, quiet
from airflow_ckpt.local.jars.jvm_options import driver_jvm_options
from airflow_ckpt.local.jars.stack_jars import spark_kafka_jars
from airflow_ckpt.local.processes.detached import start_detached
from airflow_ckpt.local.processes.interrupts import ignore_interrupts
from airflow_ckpt.local.processes.java import find_java
from airflow_ckpt.local.processes.ports import free_ports
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive
from airflow_ckpt.local.processes.waiting import wait_for

# A start takes about 20 s on two idle cores, and up to five times as long on a busy machine.
START_DEADLINE_SECONDS = 180.0
# Airflow reports a component as unhealthy if its heartbeat is 30 s old; after twice that time it has failed.
RECOVERY_DEADLINE_SECONDS = 60.0
# A component ends within 3 s of SIGTERM. Workers whose scheduler was killed never react to it.
STOP_TIMEOUT_SECONDS = 10.0
# Each check costs the starting Airflow a database query.
HEALTH_POLL_SECONDS = 0.5
# Not Airflow's default ports 8793 and 8794, which stay free for another Airflow of the user.
WORKER_LOGS_PORT = 18793
TRIGGERER_LOGS_PORT = 18794


class AirflowStandalone:
    """Starts, checks and stops one Airflow. Its state is in `home`, so that any later process can control it too."""

    def __init__(
        self,
        home: Path,
        *,
        dags: Path | None,
        port: int = 8080,
        kafka_config: Mapping[str, str],
        spark_master: str = "local[2]",
    ) -> None:
        self.home = home.absolute()
        self.dags = (dags or self.home / "dags").absolute()
        self._preferred_port = port
        self._connections = stack_connections.connections(kafka_config, spark_master)

    @property
    def ports(self) -> Ports:
        """The ports of the running Airflow, or the ports that a start tries first."""
        return self._state().ports or Ports(self._preferred_port, WORKER_LOGS_PORT, TRIGGERER_LOGS_PORT)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports.api}"

    @property
    def username(self) -> str:
        return USERNAME

    @property
    def password(self) -> str:
        return home_files.password(self.home)

    @property
    def log(self) -> Path:
        """The log of all components."""
        return self.home / "standalone.log"

    @property
    def api(self) -> AirflowApi:
        """The REST API, logged in as the admin: `airflow.api("GET", "/dags")`."""
        # The port may change after a restart; the login does not.
        self._client.url = self.url
        return self._client

    @cached_property
    def _client(self) -> AirflowApi:
        return AirflowApi(self.url, self.username, self.password)

    def start(self, announce: Announce = quiet) -> None:
        """Start Airflow; returns when all components are healthy and the API accepts the login."""
        if self._recovers():
            self._renew_connections(announce)
            return
        if component_processes.owned(self.home, self.sessions()):
            announce("stopping the processes of an earlier Airflow")
            self.stop()
        try:
            self._launch(announce)
        except BaseException:
            with ignore_interrupts():
                self.stop()
            raise

    def stop(self) -> None:
        """End every process of this Airflow, also those that tasks started."""
        component_processes.stop_owned(self.home, self.sessions(), timeout=STOP_TIMEOUT_SECONDS)
        self._state_file.unlink(missing_ok=True)

    def is_healthy(self) -> bool:
        """Whether every component is running and has sent a heartbeat since the start."""
        started_at = self._state().started_at
        if started_at is None or set(self.component_pids()) != set(COMPONENTS):
            return False
        return health.is_healthy(self.api.health(), since=started_at)

    def status(self) -> dict[str, Any]:
        """The address of this Airflow and the health of each component, for JSON."""
        pids = self.component_pids()
        health = self.api.health() if "api-server" in pids else {}
        healths = {name: str(health.get(name.replace("-", "_"), {}).get("status")) for name in COMPONENTS}
        healths["api-server"] = "healthy" if health else "unhealthy"
        return {
            "running": any(is_alive(process) for process in self.sessions()),
            "healthy": self.is_healthy(),
            "url": self.url,
            "username": self.username,
            "components": {
                name: {"state": healths[name], "pid": pids[name]} if name in pids else {"state": "stopped"}
                for name in COMPONENTS
            },
            "home": str(self.home),
            "dags": str(self.dags),
            "log": str(self.log),
        }

    def component_pids(self) -> dict[str, int]:
        """The pid of each running component by its name in COMPONENTS."""
        standalone = self._state().standalone
        found: dict[str, int] = {}
        if standalone is not None and is_alive(standalone):
            with suppress(psutil.NoSuchProcess):
                for process in psutil.Process(standalone.pid).children():
                    name = component_processes.component_of(process)
                    if name and process.status() != psutil.STATUS_ZOMBIE:
                        found[name] = process.pid
        return found

    def sessions(self) -> list[ProcessId]:
        """The first process of each session of this Airflow; also if it has ended: others of its session may be running."""
        standalone = self._state().standalone
        return [standalone] if standalone else []

    def environment(self) -> dict[str, str]:
        """The environment of every process of this Airflow."""
        java_home = find_java().resolve().parents[1]
        return home_files.environment(self.home, java_home=java_home, jvm_options=driver_jvm_options())

    def _recovers(self) -> bool:
        """Whether all components are running and become healthy in time; on a busy machine a heartbeat may be late."""
        if set(self.component_pids()) != set(COMPONENTS):
            return False
        with suppress(StackError):
            return wait_for(self.is_healthy, "healthy components", RECOVERY_DEADLINE_SECONDS, pause=HEALTH_POLL_SECONDS)
        return False

    def _launch(self, announce: Announce) -> None:
        ports = self._choose_ports(announce)
        self.home.mkdir(parents=True, exist_ok=True)
        # Airflow creates database and logs, which other users must not read either.
        self.home.chmod(0o700)
        self.dags.mkdir(parents=True, exist_ok=True)
        home_files.password(self.home)
        jars = f"{spark_kafka_jars()}/*.jar"
        driver_jvm_options(announce)
        home_files.write_settings(self.home, dags=self.dags, ports=ports, spark_jars=jars)
        state = AirflowState(ports=ports)
        airflow_state.save(state, self._state_file)
        announce(f"starting Airflow at http://{HOST}:{ports.api} (about 20 seconds)")
        started_at = time.time()
        with stack_connections.connections_file(self.home, self._connections) as file:
            argv = [sys.executable, "-m", "airflow_ckpt.local.airflow.boot", str(file)]
            standalone = start_detached(argv, log=self.log, env=self.environment(), cwd=self.home)
            digest = stack_connections.digest(self._connections)
            state = replace(state, standalone=standalone, started_at=started_at, connections=digest)
            airflow_state.save(state, self._state_file)
            self._wait_until_ready(standalone, started_at)

    def _wait_until_ready(self, standalone: ProcessId, started_at: float) -> None:
        def ready() -> bool:
            if not is_alive(standalone):
                raise StackError(f"Airflow ended while it started: {last_line_of(self.log)}")
            return health.is_healthy(self.api.health(), since=started_at)

        what = f"Airflow's components to be healthy (their log: {self.log})"
        wait_for(ready, what, START_DEADLINE_SECONDS, pause=HEALTH_POLL_SECONDS)
        self.api.fetch_token()

    def _renew_connections(self, announce: Announce) -> None:
        """Bring the connections of a running Airflow up to date, for example after Kafka moved to another port."""
        state, digest = self._state(), stack_connections.digest(self._connections)
        if state.connections == digest:
            return
        announce("updating Airflow's connections")
        stack_connections.import_connections(self.home, self._connections, self.environment())
        airflow_state.save(replace(state, connections=digest), self._state_file)

    def _choose_ports(self, announce: Announce) -> Ports:
        wanted = self.ports
        ports = Ports(*free_ports((wanted.api, wanted.worker_logs, wanted.triggerer_logs)))
        if ports.api != wanted.api:
            announce(f"port {wanted.api} is taken: Airflow uses {ports.api}")
        return ports

    @property
    def _state_file(self) -> Path:
        return self.home / "state.json"

    def _state(self) -> AirflowState:
        return airflow_state.load(self._state_file)
