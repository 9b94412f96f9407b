"""A real YARN on this machine; a test may stop or kill its daemons."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_ckpt.local.processes.ports import free_ports
from tests.support.hadoop_daemon import HOST, Daemon, answer_of, common_settings, write_settings
from tests.support.waiting import wait_for


class YarnUnderTest:
    """A YARN of one ResourceManager and one NodeManager in a folder."""

    def __init__(self, folder: Path) -> None:
        #: HADOOP_CONF_DIR for spark-submit.
        self.conf_dir = folder / "conf"
        self._folder = folder
        self._web, *others = free_ports([None] * 8)
        self._write_settings(others)
        server = "org.apache.hadoop.yarn.server"
        self.resourcemanager = Daemon(f"{server}.resourcemanager.ResourceManager", self.conf_dir, folder)
        self.nodemanager = Daemon(f"{server}.nodemanager.NodeManager", self.conf_dir, folder)

    @property
    def rm_url(self) -> str:
        """The address of the ResourceManager's REST API."""
        return f"http://{HOST}:{self._web}"

    def start(self) -> None:
        """Bring up what does not run, and wait until the ResourceManager answers and has a live node."""
        self.resourcemanager.start()
        self.resourcemanager.wait_until(self._answers, "the ResourceManager to answer")
        self.nodemanager.start()
        self.nodemanager.wait_until(self._has_node, "YARN to have a live node")

    def stop(self) -> None:
        self.nodemanager.stop()
        self.resourcemanager.stop()
        # Containers have sessions of their own: they outlive a NodeManager that was killed.
        for process in self.containers():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for(lambda: not self.containers(), "the end of YARN's containers", 10)

    def restart_rm(self, *, forget: bool = False) -> None:
        """Kill the ResourceManager and start it again; it knows its applications, unless it is to forget them."""
        self.resourcemanager.kill()
        if forget:
            shutil.rmtree(self._state, ignore_errors=True)
        self.start()

    def containers(self) -> list[psutil.Process]:
        """The living processes of YARN's containers: application masters and executors."""
        return [process for process in psutil.process_iter() if _works_in(process, self._folder / "local")]

    def get(self, path: str) -> dict[str, Any]:
        """An answer of the REST API, e.g. of `apps`; empty if there is none."""
        return answer_of(f"{self.rm_url}/ws/v1/cluster/{path}")

    @property
    def _state(self) -> Path:
        return self._folder / "state"

    def _answers(self) -> bool:
        return bool(self.get("info").get("clusterInfo", {}).get("state") == "STARTED")

    def _has_node(self) -> bool:
        nodes = (self.get("nodes").get("nodes") or {}).get("node") or []
        return self._answers() and any(node["state"] == "RUNNING" for node in nodes)

    def _write_settings(self, ports: list[int]) -> None:
        folder, at = self._folder, [f"{HOST}:{port}" for port in ports]
        write_settings(self.conf_dir / "core-site.xml", {"fs.defaultFS": "file:///", **common_settings(folder)})
        write_settings(
            self.conf_dir / "yarn-site.xml",
            {
                "yarn.resourcemanager.webapp.address": f"{HOST}:{self._web}",
                "yarn.resourcemanager.hostname": HOST,
                "yarn.resourcemanager.address": at[0],
                "yarn.resourcemanager.scheduler.address": at[1],
                "yarn.resourcemanager.resource-tracker.address": at[2],
                "yarn.resourcemanager.admin.address": at[3],
                # A ResourceManager that comes back knows what it was doing.
                "yarn.resourcemanager.recovery.enabled": "true",
                "yarn.resourcemanager.store.class": (
                    "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
                ),
                "yarn.resourcemanager.fs.state-store.uri": self._state.as_uri(),
                "yarn.resourcemanager.work-preserving-recovery.scheduling-wait-ms": "0",
                # A node that lost its ResourceManager would ask every 30 s.
                "yarn.resourcemanager.connect.retry-interval.ms": "500",
                "yarn.nodemanager.hostname": HOST,
                "yarn.nodemanager.address": at[4],
                "yarn.nodemanager.localizer.address": at[5],
                "yarn.nodemanager.webapp.address": at[6],
                "yarn.nodemanager.local-dirs": str(folder / "local"),
                "yarn.nodemanager.log-dirs": str(folder / "containers"),
                # No more than a test needs, whatever the machine has.
                "yarn.nodemanager.resource.memory-mb": "8192",
                "yarn.nodemanager.resource.cpu-vcores": "8",
                "yarn.scheduler.minimum-allocation-mb": "128",
                # A laptop's disk is fuller than a server's, and a JVM's address space larger than its memory.
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
                "yarn.nodemanager.pmem-check-enabled": "false",
                "yarn.nodemanager.vmem-check-enabled": "false",
            },
        )
        write_settings(
            self.conf_dir / "capacity-scheduler.xml",
            {
                "yarn.scheduler.capacity.root.queues": "default",
                "yarn.scheduler.capacity.root.default.capacity": "100",
                "yarn.scheduler.capacity.root.default.maximum-am-resource-percent": "1.0",
                "yarn.scheduler.capacity.resource-calculator": (
                    "org.apache.hadoop.yarn.util.resource.DefaultResourceCalculator"
                ),
            },
        )


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder)
    except psutil.Error:
        return False
