"""A whole Airflow on this machine, `airflow standalone`, with a home, a database, ports and processes of its own."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import airflow_health, airflow_home, airflow_processes
from airflow_ckpt.local.airflow_api import AirflowApi
from airflow_ckpt.local.airflow_home import HOST, USERNAME, Ports
from airflow_ckpt.local.airflow_processes import COMPONENTS
from airflow_ckpt.local.interrupts import undisturbed
from airflow_ckpt.local.jars import spark_kafka_jars
from airflow_ckpt.local.java import find_java
from airflow_ckpt.local.processes import ProcessId, free_port, is_alive, start_detached, wait_until
from airflow_ckpt.local.quick_jvm import quick_jvm

Report = Callable[[str], None]

# About 20 s on two idle cores. Five times that on a busy machine, then something is wrong.
START_DEADLINE_S = 180.0
# Airflow calls a component unhealthy when its heartbeat is 30 s old. Twice that, then it is not just slow.
RECOVERY_DEADLINE_S = 60.0
# A component says goodbye in 3 s. Workers whose scheduler was killed never react to SIGTERM.
STOP_TIMEOUT_S = 10.0
# Each question costs the starting Airflow a database query, and it has better things to do.
HEALTH_POLL_S = 0.5
# Not Airflow's own 8793 and 8794: those stay free for another Airflow of the user.
WORKER_LOGS_PORT = 18793
TRIGGERER_LOGS_PORT = 18794

# The ports on which a component's log server, a child of it, listens.
_LOG_PORT_OF = {"scheduler": "worker_logs", "triggerer": "triggerer_logs"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class AirflowStandalone:
    """Starts, watches and stops one Airflow. What it knows is in `home`, so any later process can take over."""

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
        self._connections = airflow_home.connections(kafka_config, spark_master)

    @property
    def ports(self) -> Ports:
        """The ports of the running Airflow, or those it would try first."""
        kept = self._state().get("ports")
        return Ports(**kept) if kept else Ports(self._preferred_port, WORKER_LOGS_PORT, TRIGGERER_LOGS_PORT)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports.api}"

    @property
    def username(self) -> str:
        return USERNAME

    @property
    def password(self) -> str:
        return airflow_home.password(self.home)

    @property
    def log(self) -> Path:
        """What all components print."""
        return self.home / "standalone.log"

    @property
    def api(self) -> AirflowApi:
        """The REST API, logged in as the admin: `airflow.api("GET", "/dags")`."""
        # The port may be another one after a restart; the login stays.
        self._client.url = self.url
        return self._client

    @cached_property
    def _client(self) -> AirflowApi:
        return AirflowApi(self.url, self.username, self.password)

    def start(self, report: Report | None = None) -> None:
        """Return when all components are healthy and the API takes our login. Does little if they are already."""
        say = report or _say_nothing
        if self._recovers():
            self._renew_connections(say)
            return
        if airflow_processes.owned(self.home, self._sessions()):
            say("what is left of an earlier Airflow is in the way: stopping it")
            self.stop()
        try:
            self._launch(say)
        except BaseException:
            with undisturbed():
                self.stop()
            raise

    def stop(self) -> None:
        """End every process of this Airflow, those that tasks started included."""
        airflow_processes.stop_owned(self.home, self._sessions(), timeout=STOP_TIMEOUT_S)
        self._state_file.unlink(missing_ok=True)

    def is_healthy(self) -> bool:
        """Whether every component runs and says so itself."""
        if set(self.component_pids()) != set(COMPONENTS):
            return False
        return airflow_health.is_healthy(self.api.health(), since=self._state()["started_at"])

    def status(self) -> dict[str, Any]:
        """Where this Airflow is and how each component feels, as JSON can hold it."""
        pids = self.component_pids()
        health = self.api.health() if "api-server" in pids else {}
        healths = {name: str(health.get(name.replace("-", "_"), {}).get("status")) for name in COMPONENTS}
        healths["api-server"] = "healthy" if health else "unhealthy"
        return {
            "running": any(is_alive(process) for process in self._sessions()),
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
        """The pid of each running component by name (see COMPONENTS), for those who want to kill one."""
        found: dict[str, int] = {}
        for session in filter(is_alive, self._sessions()):
            with suppress(psutil.NoSuchProcess):
                leader = psutil.Process(session.pid)
                # `standalone` has the components as children; one that was restarted leads a session itself.
                name = airflow_processes.component_of(leader)
                for process in [leader] if name else leader.children():
                    name = airflow_processes.component_of(process)
                    if name and process.status() != psutil.STATUS_ZOMBIE:
                        found[name] = process.pid
        return found

    def restart_component(self, name: str) -> int:
        """Start a component that was killed, and return its pid: `standalone` does not bring one back itself."""
        if name not in COMPONENTS:
            raise StackError(f"Airflow has no component {name!r}, only {', '.join(COMPONENTS)}")
        running = self.component_pids()
        if name in running:
            raise StackError(f"the {name} runs as pid {running[name]}: kill it before you restart it")
        if name in _LOG_PORT_OF:
            airflow_processes.free_own_port(self.home, self._sessions(), getattr(self.ports, _LOG_PORT_OF[name]))
        since = time.time()
        argv = [sys.executable, "-m", "airflow", name]
        process = start_detached(argv, log=self.log, env=self._environment(), cwd=self.home)
        state = self._state()
        # The killed ones stay in the list: their sessions may still have members.
        self._save_state({**state, "restarted": [*state.get("restarted", []), process.to_dict()]})

        def healthy() -> bool:
            if not is_alive(process):
                raise StackError(f"the {name} ended while it started: {self._last_words()}")
            monitored = () if name == "api-server" else (name.replace("-", "_"),)
            return airflow_health.is_healthy(self.api.health(), since=since, monitored=monitored)

        wait_until(_at_intervals(healthy), deadline_s=START_DEADLINE_S, what=f"Airflow's {name} to be healthy again")
        return process.pid

    def _recovers(self) -> bool:
        """Whether all components run and are healthy, now or soon: on a busy machine a heartbeat comes late."""
        if set(self.component_pids()) != set(COMPONENTS):
            return False
        with suppress(StackError):
            return wait_until(_at_intervals(self.is_healthy), deadline_s=RECOVERY_DEADLINE_S, what="its health")
        return False

    def _launch(self, say: Report) -> None:
        ports = self._choose_ports(say)
        self.home.mkdir(parents=True, exist_ok=True)
        # Also the database and the logs, which Airflow creates, are nobody else's business.
        self.home.chmod(0o700)
        self.dags.mkdir(parents=True, exist_ok=True)
        airflow_home.password(self.home)
        jars = f"{spark_kafka_jars()}/*.jar"
        quick_jvm(say)
        airflow_home.write_settings(self.home, dags=self.dags, ports=ports, spark_jars=jars)
        self._save_state({"ports": ports.to_dict()})
        connections = self._write_connections()
        say(f"starting Airflow at http://{HOST}:{ports.api} (about 20 seconds)")
        started_at = time.time()
        try:
            standalone = start_detached(
                [sys.executable, "-m", "airflow_ckpt.local.airflow_boot", str(connections)],
                log=self.log,
                env=self._environment(),
                cwd=self.home,
            )
            self._save_state(
                {
                    "ports": ports.to_dict(),
                    "standalone": standalone.to_dict(),
                    "started_at": started_at,
                    "connections": self._connections_digest(),
                }
            )
            self._wait_until_ready(standalone, started_at)
        finally:
            connections.unlink(missing_ok=True)

    def _wait_until_ready(self, standalone: ProcessId, started_at: float) -> None:
        def ready() -> bool:
            if not is_alive(standalone):
                raise StackError(f"Airflow ended while it started: {self._last_words()}")
            return airflow_health.is_healthy(self.api.health(), since=started_at)

        wait_until(
            _at_intervals(ready),
            deadline_s=START_DEADLINE_S,
            what=f"Airflow's components to be healthy (their log: {self.log})",
        )
        self.api.fetch_token()

    def _renew_connections(self, say: Report) -> None:
        """Bring the connections of a running Airflow up to date, for example after Kafka moved to another port."""
        state = self._state()
        digest = self._connections_digest()
        if state.get("connections") == digest:
            return
        say("updating Airflow's connections")
        file = self._write_connections()
        try:
            result = subprocess.run(
                [sys.executable, "-m", "airflow", "connections", "import", str(file), "--overwrite"],
                env=self._environment(),
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            file.unlink(missing_ok=True)
        if result.returncode != 0:
            raise StackError(f"Airflow did not take the connections: {_last_line(result.stderr or result.stdout)}")
        self._save_state({**state, "connections": digest})

    def _write_connections(self) -> Path:
        file = self.home / "connections.json"
        airflow_home.write_private(file, json.dumps(self._connections))
        return file

    def _connections_digest(self) -> str:
        return hashlib.sha256(json.dumps(self._connections, sort_keys=True).encode()).hexdigest()

    def _choose_ports(self, say: Report) -> Ports:
        wanted = self.ports
        chosen: list[int] = []
        for preferred in (wanted.api, wanted.worker_logs, wanted.triggerer_logs):
            port = free_port(preferred)
            while port in chosen:
                port = free_port()
            chosen.append(port)
        ports = Ports(*chosen)
        if ports.api != wanted.api:
            say(f"port {wanted.api} is taken: Airflow uses {ports.api}")
        return ports

    def _environment(self) -> dict[str, str]:
        java_home = find_java().resolve().parents[1]
        return airflow_home.environment(self.home, java_home=java_home, jvm_options=quick_jvm())

    def _sessions(self) -> list[ProcessId]:
        """The first process of each session of this Airflow, whether it still lives or not."""
        state = self._state()
        kept = [*([state["standalone"]] if "standalone" in state else []), *state.get("restarted", [])]
        return [ProcessId.from_dict(process) for process in kept]

    @property
    def _state_file(self) -> Path:
        return self.home / "state.json"

    def _state(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._state_file.read_text())
        except FileNotFoundError:
            return {}
        return state

    def _save_state(self, state: Mapping[str, Any]) -> None:
        airflow_home.write_private(self._state_file, json.dumps(state, indent=2) + "\n")

    def _last_words(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return f"{_last_line(text)} (whole log: {self.log})"


def _at_intervals(fact: Callable[[], bool]) -> Callable[[], bool]:
    """The same fact, but asked no more often than every HEALTH_POLL_S."""
    asked_at = float("-inf")

    def ask() -> bool:
        nonlocal asked_at
        if time.monotonic() - asked_at < HEALTH_POLL_S:
            return False
        asked_at = time.monotonic()
        return fact()

    return ask


def _last_line(text: str) -> str:
    lines = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


def _say_nothing(line: str) -> None:
    """The report of a caller that wants none."""
