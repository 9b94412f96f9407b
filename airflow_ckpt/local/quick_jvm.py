"""Options for the JVM of a driver on this machine, which lives for minutes: most of what it costs is its start.

Java can map classes from an archive instead of reading them from jars and checking them. The archive is made once, by a
small stream, and lies in the environment of the pyspark whose jars it stands for. Java itself refuses one that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import file_lock
from airflow_ckpt.local.jars import pyspark_home
from airflow_ckpt.local.java import find_java

Report = Callable[[str], None]

# One compiler and one thread for garbage: the others cost more than they give in so short a life.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
ARCHIVE_SECONDS = 300.0
#: Beside the archive that could not be made, with the reason.
FAILED = ".failed"


def quick_jvm(report: Report | None = None) -> str:
    """The options, with the archive of classes if there is one or it can be made."""
    archive = class_archive(report)
    return " ".join(OPTIONS if archive is None else (*OPTIONS, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"))


def class_archive(report: Report | None = None) -> Path | None:
    """The archive for this Java and this pyspark, made now if need be; None where it cannot be made."""
    archive = _place()
    if archive.exists():
        return archive
    if archive.with_suffix(FAILED).exists() or not os.access(sys.prefix, os.W_OK):
        return None
    say = report or (lambda line: None)
    with file_lock.exclusive(
        archive.with_suffix(".lock"), if_held=lambda: say("another process is preparing Spark: waiting for it")
    ):
        if not archive.exists():
            say("preparing Spark, so that drivers start in half the time (once; about half a minute)")
            _make(archive, say)
    return archive if archive.exists() else None


def _place() -> Path:
    """Another Java, or another pyspark, has another archive."""
    java, jars = find_java().resolve(), pyspark_home() / "jars"
    newest = max(file.stat().st_mtime_ns for file in (java, jars, *jars.glob("*.jar")))
    key = hashlib.sha256(f"{java} {jars} {newest}".encode()).hexdigest()[:16]
    return Path(sys.prefix) / "share" / "airflow-ckpt" / f"spark-{key}.jsa"


def _make(archive: Path, say: Report) -> None:
    """Drivers do without it if this fails; it is not tried again."""
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        _run_stream(partial)
    except StackError as error:
        archive.with_suffix(FAILED).write_text(f"{error}\n")
        say(f"Spark could not be prepared, so that drivers start more slowly: {error}")
        return
    for former in archive.parent.glob("spark-*.jsa"):
        former.unlink()
    partial.rename(archive)


def _run_stream(archive: Path) -> None:
    """Run a small stream whose JVM writes the archive when it ends."""
    options = (*OPTIONS, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    environment = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": " ".join(options),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit: list[str | Path] = [
        Path(sys.executable).parent / "spark-submit",
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    with tempfile.TemporaryDirectory(prefix="airflow-ckpt-") as folder:
        argv = [*submit, Path(__file__).with_name("quick_jvm_stream.py"), folder]
        try:
            done = subprocess.run(
                argv, env=environment, capture_output=True, text=True, timeout=ARCHIVE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StackError(str(error)) from error
    if done.returncode or not archive.exists():
        raise StackError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
