"""A Hadoop daemon as a process of this machine that a test may stop or kill, with its jars and settings."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import requests

from airflow_ckpt.local.jars import stack_jars
from airflow_ckpt.local.processes.detached import start_detached, stop_tree
from airflow_ckpt.local.processes.java import find_java
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive, send_signal
from ckpt_stream.protocol.deadline import Deadline
from tests.support.waiting import wait_for

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
START_DEADLINE_SECONDS = 120.0

# Small heaps and no optimising compiler, for short runs. Hadoop's dependency injection reads java.lang.
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")
_OPENED = ("--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.util=ALL-UNNAMED")
_LOG4J = """log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""


def hadoop_jars() -> Path:
    """The folder with all of HDFS and YARN, downloaded once (90 MB)."""
    return stack_jars.resolve(
        [f"org.apache.hadoop:{part}:{HADOOP_VERSION}" for part in PARTS], name=f"hadoop-{HADOOP_VERSION}"
    )


class Daemon:
    """One process of a Hadoop cluster."""

    def __init__(self, main_class: str, conf_dir: Path, folder: Path) -> None:
        self.name = main_class.rpartition(".")[2].lower()
        self.log = folder / f"{self.name}.log"
        self.process: ProcessId | None = None
        self._argv = java_command(conf_dir, main_class)
        self._folder = folder

    @property
    def is_up(self) -> bool:
        return self.process is not None and is_alive(self.process)

    def start(self) -> None:
        """Start it, unless it runs. It may take seconds until it answers."""
        if not self.is_up:
            self.process = start_detached(self._argv, log=self.log, cwd=self._folder, env=environment())

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
        wait_for(lambda: not is_alive(process), f"the end of the {self.name}", 10)

    def wait_until(self, answers: Callable[[], bool], what: str) -> None:
        """Wait for a fact that this process must bring about; an error shows the end of its log."""
        found = Deadline.after(START_DEADLINE_SECONDS).wait_for(lambda: not self.is_up or answers())
        assert self.is_up, f"the {self.name} ended while it was starting. {self._end_of_log()}"
        assert found, f"timed out after {START_DEADLINE_SECONDS:g} s of waiting for {what}. {self._end_of_log()}"

    def _end_of_log(self) -> str:
        return f"The end of {self.log}:\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def common_settings(folder: Path) -> dict[str, str]:
    return {"hadoop.tmp.dir": str(folder / "tmp")}


def java_command(conf_dir: Path, main_class: str) -> list[str]:
    classpath = os.pathsep.join([str(conf_dir), f"{hadoop_jars()}/*"])
    return [str(find_java()), *_JVM, *_OPENED, "-cp", classpath, main_class]


def environment() -> dict[str, str]:
    """The environment without what a user may have set for another Hadoop."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "HDFS_", "YARN_"))}


def write_settings(file: Path, settings: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    (file.parent / "log4j.properties").write_text(_LOG4J)
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    file.write_text(f"<?xml version='1.0'?>\n<configuration>\n{properties}</configuration>\n")


def answer_of(url: str, **parameters: str) -> dict[str, Any]:
    """What a daemon answers; empty while it does not."""
    try:
        answer = requests.get(url, params=parameters, timeout=5)
        return dict(answer.json()) if answer.ok else {}
    except (requests.RequestException, ValueError):
        return {}
