"""What is written into an Airflow home, and what its processes inherit."""

from __future__ import annotations

import configparser
import os
import sqlite3
import stat
import sys
from pathlib import Path

import pytest

from airflow_ckpt.local.airflow import home_files
from airflow_ckpt.local.airflow.home_files import Ports

PORTS = Ports(api=8090, worker_logs=18793, triggerer_logs=18794)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.unit
def test_the_password_is_made_up_once_and_kept_for_the_owner_only(tmp_path: Path) -> None:
    password = home_files.password(tmp_path)

    assert len(password) >= 12
    assert home_files.password(tmp_path) == password
    assert mode(home_files.passwords_file(tmp_path)) == 0o600


@pytest.mark.unit
def test_two_homes_have_different_passwords_and_keys(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    assert home_files.password(first) != home_files.password(second)
    assert home_files.keys(first) != home_files.keys(second)


@pytest.mark.unit
def test_settings_written_twice_hold_the_same_keys_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    file = home_files.write_settings(tmp_path, dags=tmp_path, ports=PORTS)
    first = file.read_text()

    assert home_files.write_settings(tmp_path, dags=tmp_path, ports=PORTS).read_text() == first
    assert mode(file) == 0o600


@pytest.mark.unit
def test_the_execution_api_follows_the_port(tmp_path: Path) -> None:
    settings = home_files.settings(tmp_path, dags=tmp_path, ports=PORTS)

    assert settings["core"]["execution_api_server_url"] == "http://127.0.0.1:8090/execution/"


@pytest.mark.unit
def test_a_percent_sign_in_a_path_survives_airflows_interpolation(tmp_path: Path) -> None:
    dags = tmp_path / "100%"

    file = home_files.write_settings(tmp_path, dags=dags, ports=PORTS)

    as_airflow_reads = configparser.ConfigParser()
    as_airflow_reads.read(file)
    assert as_airflow_reads["core"]["dags_folder"] == str(dags)


@pytest.mark.unit
def test_the_environment_forgets_what_steers_another_airflow_or_spark(tmp_path: Path) -> None:
    base = {
        "AIRFLOW_HOME": "/elsewhere",
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW_CONN_KAFKA_DEFAULT": "kafka://elsewhere",
        "SPARK_HOME": "/opt/another-spark",
        "LANG": "C.UTF-8",
    }

    env = home_files.environment(tmp_path, base=base)

    assert env["AIRFLOW_HOME"] == str(tmp_path)
    assert env["LANG"] == "C.UTF-8"
    assert not {"AIRFLOW__CORE__EXECUTOR", "AIRFLOW_CONN_KAFKA_DEFAULT", "SPARK_HOME"} & set(env)


@pytest.mark.unit
def test_programs_of_this_python_come_first_on_the_path(tmp_path: Path) -> None:
    env = home_files.environment(tmp_path, base={"PATH": "/usr/bin"})

    assert env["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/usr/bin"]


@pytest.mark.unit
def test_a_company_proxy_is_not_asked_for_this_machine(tmp_path: Path) -> None:
    env = home_files.environment(tmp_path, base={"HTTP_PROXY": "http://proxy", "no_proxy": "intranet"})

    assert env["NO_PROXY"] == env["no_proxy"] == "intranet,127.0.0.1,localhost"


@pytest.mark.integration
def test_the_home_of_the_tests_has_a_database_of_airflows(airflow_home: Path) -> None:
    with sqlite3.connect(airflow_home / "airflow.db") as database:
        tables = {row[0] for row in database.execute("select name from sqlite_master where type = 'table'")}

    assert {"dag", "connection", "trigger"} <= tables
    assert os.environ["AIRFLOW_HOME"] == str(airflow_home)
