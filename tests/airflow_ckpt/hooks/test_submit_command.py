"""The spark-submit command of a driver, as stream, runner and deployment want it."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import NotInstalled
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.supervision.launch_request import LaunchRequest
from tests.airflow_ckpt.hooks.launches import Make, option
from tests.airflow_ckpt.supervision.samples import a_stream

pytestmark = pytest.mark.unit


def test_the_command_holds_what_stream_and_runner_say(make: Make) -> None:
    launch = make(a_stream(spark_conf={"spark.executor.memory": "2g", "spark.yarn.tags": "mine"}))
    assert (option(launch, "--master"), option(launch, "--name")) == ("local[*]", "orders")
    confs = [launch.argv[i + 1] for i, part in enumerate(launch.argv) if part == "--conf"]
    assert confs == ["spark.executor.memory=2g", "spark.yarn.tags=t1"]
    assert Path(launch.argv[0]).name == "spark-submit"
    assert Path(launch.argv[0]).is_absolute()


def test_the_connector_comes_from_the_stream_the_deployment_or_a_download(make: Make, settings: Settings) -> None:
    own = make(a_stream(packages=["g:a:1"]), order=LaunchRequest("t1"))
    assert (option(own, "--packages"), option(own, "--jars")) == ("g:a:1", None)
    deployed = make(order=LaunchRequest("t2"))
    assert (option(deployed, "--packages"), option(deployed, "--jars")) == (None, "/jars/kafka.jar")
    download = make(order=LaunchRequest("t3"), settings=replace(settings, spark_jars=()))
    assert re.fullmatch(
        r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:\d+\.\d+\.\d+", option(download, "--packages") or ""
    )


def test_workers_of_a_local_master_run_the_python_that_airflow_runs(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert make(order=LaunchRequest("t1")).env == {"PYSPARK_PYTHON": sys.executable}
    assert make(order=LaunchRequest("t2"), host="spark://m", port=7077).env == {}


def test_a_folder_is_never_used_by_two_runs(make: Make) -> None:
    make()
    with pytest.raises(FileExistsError):
        make()


def test_a_worker_without_spark_says_what_to_install(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(NotInstalled, match=r"spark-submit.*PATH.*pip install"):
        make()
