"""The archive of Spark's classes: made once, used by drivers, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.jars import jvm_options as under_test
from airflow_ckpt.local.jars.stack_jars import pyspark_home
from airflow_ckpt.local.processes.java import find_java

#: A class of Spark that no JVM has in an archive of its own.
SPARK_CLASS = "org.apache.spark.SparkConf"


@pytest.mark.integration
def test_the_jvm_takes_sparks_classes_from_the_archive(tmp_path: Path) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().stop()\n")
    log = tmp_path / "classes"
    subprocess.run(
        [
            Path(sys.executable).parent / "spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false",
            "--driver-java-options", f"{under_test.driver_jvm_options()} -Xlog:class+load:file={log}", script,
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable}, capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    (loaded,) = [line for line in log.read_text().splitlines() if f" {SPARK_CLASS} source:" in line]
    assert "shared objects file (top)" in loaded


@pytest.mark.integration
def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    archive.write_bytes(b"of another Java")
    options = [*under_test.SHORT_RUN_OPTIONS, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    ended = subprocess.run([find_java(), *options, "-version"], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert "openjdk" in ended.stderr.lower()


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(under_test, "find_java", lambda: Path(sys.executable))
    return tmp_path


@pytest.mark.unit
def test_it_is_made_once_and_replaces_the_one_of_another_java(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make(archive: Path) -> None:
        made.append(archive)
        archive.touch()

    monkeypatch.setattr(under_test, "_run_recording", make)
    folder = prefix / "share" / "airflow-ckpt"
    folder.mkdir(parents=True)
    (folder / "spark-0123456789abcdef.jsa").touch()
    said: list[str] = []

    archive = under_test.class_archive(said.append)

    assert archive is not None
    assert under_test.class_archive() == archive
    assert f"-XX:SharedArchiveFile={archive}" in under_test.driver_jvm_options().split()
    assert len(made) == 1
    assert list(folder.glob("*.jsa")) == [archive]
    assert len(said) == 1
    assert "once" in said[0]


@pytest.mark.unit
def test_without_it_drivers_only_start_more_slowly(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Path] = []

    def fail(archive: Path) -> None:
        tries.append(archive)
        raise StackError("no room")

    monkeypatch.setattr(under_test, "_run_recording", fail)
    said: list[str] = []

    assert under_test.driver_jvm_options(said.append).split() == list(under_test.SHORT_RUN_OPTIONS)
    assert said[-1].endswith("more slowly: no room")
    assert under_test.driver_jvm_options(said.append).split() == list(under_test.SHORT_RUN_OPTIONS)
    assert len(tries) == 1


@pytest.mark.unit
def test_another_pyspark_has_another_archive(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = under_test._archive_path()
    other = prefix / "pyspark"
    (other / "jars").mkdir(parents=True)
    assert pyspark_home() != other
    monkeypatch.setattr(under_test, "pyspark_home", lambda: other)
    assert under_test._archive_path() != here
