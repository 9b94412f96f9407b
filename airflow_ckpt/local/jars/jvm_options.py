"""Options with which the JVM of a driver on this machine starts in half the time.

Java can map classes from an archive instead of reading them from jars and checking them. A small stream (record_classes.py)
makes the archive once; it is stored in the environment of the pyspark whose jars it contains. Java ignores an archive that does
not fit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.announcements import Announce, quiet
from airflow_ckpt.local.jars.stack_jars import pyspark_home
from airflow_ckpt.local.processes import file_lock
from airflow_ckpt.local.processes.java import find_java

# In a JVM that runs for minutes, the optimising compiler and parallel garbage collection cost more time than they save.
SHORT_RUN_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
ARCHIVE_SECONDS = 300.0
#: The suffix of the file that is written in place of an archive that could not be made; it has the reason.
FAILURE_SUFFIX = ".failed"


def driver_jvm_options(announce: Announce = quiet) -> str:
    """The options as one text, with the archive of classes if there is one or it can be made."""
    archive = class_archive(announce)
    return " ".join(
        SHORT_RUN_OPTIONS
        if archive is None
        else (*SHORT_RUN_OPTIONS, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off")
    )


def class_archive(announce: Announce = quiet) -> Path | None:
    """The archive for this Java and this pyspark; made if it does not exist; None if it cannot be made."""
    archive = _archive_path()
    if archive.exists():
        return archive
    if archive.with_suffix(FAILURE_SUFFIX).exists() or not os.access(sys.prefix, os.W_OK):
        return None
    with file_lock.exclusive(
        archive.with_suffix(".lock"), if_held=lambda: announce("another process is preparing Spark: waiting for it")
    ):
        if not archive.exists():
            announce("preparing Spark, so that drivers start in half the time (once; about half a minute)")
            _make_archive(archive, announce)
    return archive if archive.exists() else None


def _archive_path() -> Path:
    """The place of the archive, which depends on Java and on the jars of pyspark."""
    java, jars = find_java().resolve(), pyspark_home() / "jars"
    newest = max(file.stat().st_mtime_ns for file in (java, jars, *jars.glob("*.jar")))
    key = hashlib.sha256(f"{java} {jars} {newest}".encode()).hexdigest()[:16]
    return Path(sys.prefix) / "share" / "airflow-ckpt" / f"spark-{key}.jsa"


def _make_archive(archive: Path, announce: Announce) -> None:
    """Make the archive. If that fails, drivers run without an archive, and later starts do not try again."""
    partial = archive.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        _run_recording(partial)
    except StackError as error:
        archive.with_suffix(FAILURE_SUFFIX).write_text(f"{error}\n")
        announce(f"Spark could not be prepared, so that drivers start more slowly: {error}")
        return
    for former in archive.parent.glob("spark-*.jsa"):
        former.unlink()
    partial.rename(archive)


def _run_recording(archive: Path) -> None:
    """Run the small stream; its JVM writes the archive when it ends."""
    options = (*SHORT_RUN_OPTIONS, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
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
        argv = [*submit, Path(__file__).with_name("record_classes.py"), folder]
        try:
            done = subprocess.run(
                argv, env=environment, capture_output=True, text=True, timeout=ARCHIVE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StackError(str(error)) from error
    if done.returncode or not archive.exists():
        raise StackError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
