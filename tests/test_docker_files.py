"""The images and scripts of docker/, checked without a container engine: versions, checksums, and the secrets they make."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
DOCKERFILES = (ROOT / "docker/airflow.Dockerfile", ROOT / "docker/spark.Dockerfile")
EXAMPLE = ROOT / "docker/env.example"


def _locked() -> dict[str, set[str]]:
    """Every version that uv.lock has of a package: some have one per Python version."""
    versions: dict[str, set[str]] = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        versions.setdefault(package["name"], set()).add(package.get("version", ""))
    return versions


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_an_image_installs_the_versions_of_the_lock_file(file: Path) -> None:
    locked, installed = _locked(), dict(re.findall(r"([a-z-]+)==([\w.]+)", file.read_text()))

    assert {"pyspark", "confluent-kafka", "pyarrow", "xxhash"} <= set(installed)
    assert {name: version for name, version in installed.items() if version not in locked[name]} == {}


def test_driver_and_executors_have_the_same_python_java_and_packages() -> None:
    airflow, spark = (file.read_text() for file in DOCKERFILES)
    python = re.search(r"FROM apache/airflow:[\d.]+-python([\d.]+)", airflow)
    assert python
    assert re.search(rf"FROM python:{re.escape(python[1])}\.\d+-", spark), "PySpark refuses another minor version"
    java = [re.search(r"eclipse-temurin:\S+", text) for text in (airflow, spark)]
    assert java[0]
    assert java[1]
    assert java[0][0] == java[1][0]
    pins = [dict(re.findall(r"([a-z-]+)==([\w.]+)", text)) for text in (airflow, spark)]
    assert {name: pins[0].get(name) for name in pins[1]} == pins[1]
    assert pins[0]["pyspark-client"] == pins[0]["pyspark"], "they write into the same folder"


def test_the_airflow_image_is_of_the_release_that_the_tests_run_against() -> None:
    (version,) = _locked()["apache-airflow"]
    airflow = DOCKERFILES[0].read_text()

    assert f"FROM apache/airflow:{version}-python" in airflow
    assert f"apache-airflow=={version}" in airflow


def test_the_connector_in_the_image_is_that_of_the_installed_spark() -> None:
    (spark,) = _locked()["pyspark"]
    airflow = DOCKERFILES[0].read_text()
    jars = re.findall(r"/([\w.-]+)\.jar", airflow)

    assert f"spark-sql-kafka-0-10_2.13-{spark}" in jars
    assert f"spark-token-provider-kafka-0-10_2.13-{spark}" in jars
    assert len(re.findall(r"--checksum=sha256:[0-9a-f]{64} ", airflow)) == len(jars) == 4


def test_the_examples_have_their_topics() -> None:
    streams = (ROOT / "dags/streams.py").read_text()
    declared = set(re.findall(r'(?:source|sink)="(\w+)"', streams))
    made = re.search(r"for topic in ([^;]+);", (ROOT / "docker/init-topics.sh").read_text())

    assert made
    assert set(made[1].split()) == declared


def test_the_scripts_are_shell_that_parses() -> None:
    for script in (ROOT / "docker").glob("*.sh"):
        shell = "bash" if "bash" in script.read_text().splitlines()[0] else "sh"
        subprocess.run([shell, "-n", str(script)], check=True)
        assert os.access(script, os.X_OK), script.name


def test_make_env_fills_in_every_secret_once(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.mkdir()
    for name in ("make-env.sh", "env.example"):
        shutil.copy(ROOT / "docker" / name, docker)

    first = subprocess.run([str(docker / "make-env.sh")], capture_output=True, text=True, check=True)
    written = (tmp_path / ".env").read_text()
    again = subprocess.run([str(docker / "make-env.sh")], capture_output=True, text=True, check=False)

    values = dict(re.findall(r"^([A-Z_]+)=(.+)$", written, re.MULTILINE))
    assert list(values) == re.findall(r"^([A-Z_]+)=", EXAMPLE.read_text(), re.MULTILINE)
    assert len(set(values.values())) == len(values)
    assert all(len(value) >= 43 for value in values.values())
    Fernet(values["AIRFLOW_FERNET_KEY"])
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    assert not any(value in first.stdout for value in values.values())
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert (tmp_path / ".env").read_text() == written
