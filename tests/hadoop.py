"""A real HDFS and a real YARN on this machine, each daemon a process of its own that a test may stop or kill."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import fsspec
import psutil
import requests

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import jars
from airflow_ckpt.local.java import find_java
from airflow_ckpt.local.processes import (
    ProcessId,
    free_port,
    is_alive,
    send_signal,
    start_detached,
    stop_tree,
    wait_until,
)

#: The version of the Hadoop client that pyspark 4.0 brings.
HADOOP_VERSION = "3.4.1"
PARTS = (
    "hadoop-hdfs",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-timelineservice",
)
HOST = "127.0.0.1"
# Each answers in 3 to 6 s; with Spark at work on the same two cores it takes several times that.
START_DEADLINE_S = 120.0

# Small heaps and the quick compiler for short lives; Hadoop's dependency injection looks into java.lang.
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")
_OPENED = ("--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.util=ALL-UNNAMED")
_LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def hadoop_jars() -> Path:
    """The folder with all of HDFS and YARN, downloaded once (90 MB)."""
    return jars.resolve(
        [f"org.apache.hadoop:{part}:{HADOOP_VERSION}" for part in PARTS], name=f"hadoop-{HADOOP_VERSION}"
    )


class Daemon:
    """One process of a Hadoop cluster."""

    def __init__(self, main_class: str, conf_dir: Path, folder: Path) -> None:
        self.name = main_class.rpartition(".")[2].lower()
        self.log = folder / f"{self.name}.log"
        self.process: ProcessId | None = None
        self._argv = _java(conf_dir, main_class)
        self._folder = folder

    @property
    def is_up(self) -> bool:
        return self.process is not None and is_alive(self.process)

    def start(self) -> None:
        """Start it, unless it runs. It may take seconds until it answers."""
        if not self.is_up:
            self.process = start_detached(self._argv, log=self.log, cwd=self._folder, env=_environment())

    def stop(self) -> None:
        """End it in order, and all that it started."""
        if self.process is not None:
            stop_tree(self.process)
            self.process = None

    def kill(self) -> None:
        """SIGKILL, as in a power cut."""
        assert self.process is not None, f"{self.name} does not run"
        process, self.process = self.process, None
        send_signal(process, signal.SIGKILL)
        wait_until(lambda: not is_alive(process), deadline_s=10, what=f"the end of the {self.name}")

    def wait_until(self, answers: Callable[[], bool], what: str) -> None:
        """Wait for a fact that this process must bring about; its log tells why it did not."""

        def outcome() -> str | None:
            if not self.is_up:
                return "ended"
            return "answers" if answers() else None

        try:
            if wait_until(outcome, deadline_s=START_DEADLINE_S, what=what) == "answers":
                return
        except StackError as error:
            raise StackError(f"{error}. {self._end_of_log()}") from error
        raise StackError(f"the {self.name} ended while it was starting. {self._end_of_log()}")

    def _end_of_log(self) -> str:
        return f"The end of {self.log}:\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


class HdfsUnderTest:
    """An HDFS of one NameNode and one DataNode in a folder."""

    def __init__(self, folder: Path) -> None:
        self.conf_dir = folder / "conf"
        self._rpc, self._http, *others = _ports(5)
        self._folder = folder
        self._write_settings(others)
        self.namenode = Daemon("org.apache.hadoop.hdfs.server.namenode.NameNode", self.conf_dir, folder)
        self.datanode = Daemon("org.apache.hadoop.hdfs.server.datanode.DataNode", self.conf_dir, folder)

    @property
    def uri(self) -> str:
        """As Spark names it."""
        return f"hdfs://{HOST}:{self._rpc}"

    @property
    def webhdfs(self) -> dict[str, Any]:
        """What fsspec's `webhdfs` needs to see the same files."""
        return {"host": HOST, "port": self._http, "user": getpass.getuser()}

    def start(self) -> None:
        """Bring up what does not run, and wait until files can be read and written."""
        if not (self._folder / "name").exists():
            argv = [
                *_java(self.conf_dir, "org.apache.hadoop.hdfs.server.namenode.NameNode"),
                "-format",
                "-nonInteractive",
            ]
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, cwd=self._folder, env=_environment()
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        self.namenode.start()
        self.datanode.start()
        self.namenode.wait_until(self._answers, "HDFS to be writable")

    def stop(self) -> None:
        self.datanode.stop()
        self.namenode.stop()

    def _answers(self) -> bool:
        web = f"http://{HOST}:{self._http}"
        listing = _get(f"{web}/webhdfs/v1/", op="LISTSTATUS", **{"user.name": getpass.getuser()})
        beans = _get(f"{web}/jmx", qry="Hadoop:service=NameNode,name=FSNamesystemState").get("beans") or [{}]
        if not listing or beans[0].get("NumLiveDataNodes") != 1 or beans[0].get("FSState") != "Operational":
            return False
        return self._is_writable()

    def _is_writable(self) -> bool:
        """The NameNode goes on counting a DataNode that was killed: only a file that went through it proves it."""
        files = fsspec.filesystem("webhdfs", **self.webhdfs, skip_instance_cache=True)
        try:
            files.pipe_file("/probe", b"written")
            return bool(files.cat_file("/probe") == b"written")
        except (OSError, RuntimeError):
            return False

    def _write_settings(self, datanode_ports: list[int]) -> None:
        data, http, ipc = datanode_ports
        _write_xml(self.conf_dir / "core-site.xml", {"fs.defaultFS": self.uri, **_common(self._folder)})
        _write_xml(
            self.conf_dir / "hdfs-site.xml",
            {
                "dfs.namenode.rpc-address": f"{HOST}:{self._rpc}",
                "dfs.namenode.http-address": f"{HOST}:{self._http}",
                "dfs.namenode.name.dir": str(self._folder / "name"),
                "dfs.namenode.safemode.min.datanodes": "1",
                "dfs.namenode.safemode.extension": "0",
                "dfs.datanode.address": f"{HOST}:{data}",
                "dfs.datanode.http.address": f"{HOST}:{http}",
                "dfs.datanode.ipc.address": f"{HOST}:{ipc}",
                # The machine's own name, to which WebHDFS would redirect, may lead elsewhere.
                "dfs.datanode.hostname": HOST,
                "dfs.datanode.data.dir": str(self._folder / "data"),
                "dfs.replication": "1",
                "dfs.permissions.superusergroup": "root",
            },
        )
        for app in ("hdfs", "datanode"):
            (self.conf_dir / "webapps" / app).mkdir(parents=True)


class YarnUnderTest:
    """A YARN of one ResourceManager and one NodeManager in a folder."""

    def __init__(self, folder: Path) -> None:
        #: HADOOP_CONF_DIR for spark-submit.
        self.conf_dir = folder / "conf"
        self._folder = folder
        self._web, *others = _ports(8)
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
        wait_until(lambda: not self.containers(), deadline_s=10, what="the end of YARN's containers")

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
        return _get(f"{self.rm_url}/ws/v1/cluster/{path}")

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
        _write_xml(self.conf_dir / "core-site.xml", {"fs.defaultFS": "file:///", **_common(folder)})
        _write_xml(
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
        _write_xml(
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


def _common(folder: Path) -> dict[str, str]:
    return {"hadoop.tmp.dir": str(folder / "tmp")}


def _ports(count: int) -> list[int]:
    chosen: set[int] = set()
    while len(chosen) < count:
        chosen.add(free_port())
    return list(chosen)


def _java(conf_dir: Path, main_class: str) -> list[str]:
    classpath = os.pathsep.join([str(conf_dir), f"{hadoop_jars()}/*"])
    return [str(find_java()), *_JVM, *_OPENED, "-cp", classpath, main_class]


def _environment() -> dict[str, str]:
    """Without what a user may have set for a Hadoop of his own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "HDFS_", "YARN_"))}


def _write_xml(file: Path, settings: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "log4j.properties").write_text(_LOG4J)
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    file.write_text(f"<?xml version='1.0'?>\n<configuration>\n{properties}</configuration>\n")


def _get(url: str, **parameters: str) -> dict[str, Any]:
    """What a daemon answers; empty while it does not."""
    try:
        answer = requests.get(url, params=parameters, timeout=5)
        return dict(answer.json()) if answer.ok else {}
    except (requests.RequestException, ValueError):
        return {}


def _works_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder)
    except psutil.Error:
        return False
