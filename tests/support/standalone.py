"""A real Spark standalone cluster on this machine: a Master and Workers, any of which a test may kill."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

from airflow_ckpt.hooks.library_archive import write_library
from airflow_ckpt.local.jars.jvm_options import SHORT_RUN_OPTIONS
from airflow_ckpt.local.jars.stack_jars import pyspark_home
from airflow_ckpt.local.processes.detached import start_detached, stop_tree
from airflow_ckpt.local.processes.ports import free_port
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive
from tests.support.waiting import wait_for

HOST = "127.0.0.1"
# Master and Workers answer in 2 to 4 s; on two busy cores it takes several times that.
START_DEADLINE_SECONDS = 60.0

#: In an executor's environment: its Python workers are out of Spark's reach, as on a machine that is too busy.
OUT_OF_REACH = "TEST_WORKERS_OUT_OF_REACH"
#: In the executors' Python: where a crash point would kill the worker alone, the worker stands still, so that the test
#: can kill its whole machine at that very place.
_STAND_STILL = f"""import os
import signal

_kill = os.kill


def kill(pid, sig):
    if sig == signal.SIGKILL and pid == os.getpid():
        sig = signal.SIGSTOP
    elif sig == signal.SIGKILL and os.environ.get("{OUT_OF_REACH}"):
        return
    _kill(pid, sig)


os.kill = kill
"""


@dataclass
class Worker:
    """One machine of the cluster: a Worker, its executors and their Python workers."""

    process: ProcessId

    @property
    def is_up(self) -> bool:
        return is_alive(self.process)

    def owns(self, pid: int) -> bool:
        return self.process.pid in (parent.pid for parent in psutil.Process(pid).parents())

    def family(self) -> list[psutil.Process]:
        leader = psutil.Process(self.process.pid)
        return [leader, *leader.children(recursive=True)]

    def kill(self) -> None:
        """SIGKILL all of it, as in a power cut."""
        family = self.family()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for(
            lambda: not self.is_up and not any(_runs(process) for process in family), "the end of a Spark worker", 10
        )


class StandaloneUnderTest:
    """A cluster with two Workers of one core each; its executors have a Python that does not know `ckpt_stream`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port, self._web = free_port(), free_port()
        self._master: ProcessId | None = None
        self.workers: list[Worker] = []
        self.python = _python_without_ckpt_stream(folder / "python")
        self.py_files = write_library(folder / "ckpt_stream.zip")

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def start(self, workers: int = 2) -> None:
        """Bring up what does not run, and wait until the Master counts so many Workers."""
        if self._master is None:
            argv = ["--host", HOST, "--port", str(self._port), "--webui-port", str(self._web)]
            self._master = self._launch("org.apache.spark.deploy.master.Master", *argv)
        wait_for(lambda: self.alive_workers_or_none() is not None, "the Spark master to answer", START_DEADLINE_SECONDS)
        self.workers = [worker for worker in self.workers if worker.is_up]
        while len(self.workers) < workers:
            argv = ["--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", str(free_port())]
            argv += ["--work-dir", str(self.folder / "work"), self.url]
            self.workers.append(Worker(self._launch("org.apache.spark.deploy.worker.Worker", *argv)))
        wait_for(
            lambda: self.alive_workers_or_none() == workers,
            f"{workers} workers; their logs are in {self.folder}",
            START_DEADLINE_SECONDS,
        )

    def stop(self) -> None:
        for process in [*(worker.process for worker in self.workers), *([self._master] if self._master else [])]:
            stop_tree(process)
        self.workers, self._master = [], None

    def alive_workers_or_none(self) -> int | None:
        """How many Workers the Master counts; None while it does not answer."""
        try:
            found: dict[str, Any] = requests.get(f"http://{HOST}:{self._web}/json/", timeout=5).json()
        except (requests.RequestException, ValueError):
            return None
        return sum(worker["state"] == "ALIVE" for worker in found["workers"])

    def submit(self) -> dict[str, Any]:
        """What `StreamUnderTest.start` needs to run a stream here."""
        return {
            "master": self.url,
            "submit": ["--py-files", str(self.py_files)],
            "env": {"PYSPARK_PYTHON": str(self.python), "PYSPARK_DRIVER_PYTHON": sys.executable},
            "conf": {
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.executor.extraJavaOptions": " ".join(SHORT_RUN_OPTIONS),
            },
        }

    def _launch(self, main_class: str, *argv: str) -> ProcessId:
        home = pyspark_home()
        name = f"{main_class.rpartition('.')[2].lower()}-{len(list(self.folder.glob('*.log')))}.log"
        env = {n: v for n, v in os.environ.items() if not n.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        env |= {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(SHORT_RUN_OPTIONS),
        }
        return start_detached(
            [str(home / "bin" / "spark-class"), main_class, *argv], log=self.folder / name, cwd=self.folder, env=env
        )


def _python_without_ckpt_stream(folder: Path) -> Path:
    """A Python with all our packages except ckpt_stream and airflow_ckpt.

    They are installed through a .pth file, and Python does not look at .pth files in folders that one itself adds.
    """
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "sitecustomize.py").write_text(_STAND_STILL)
    return folder / "bin" / "python"


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
