"""A real `airflow standalone`, started once for all of these tests."""

from __future__ import annotations

import json

import psutil
import pytest

from airflow_ckpt.local.airflow.component_processes import COMPONENTS
from tests.support.breakable_airflow import BreakableAirflow
from tests.support.dag_runs import task_log, wait_for_run
from tests.support.leftovers import processes_of
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DAG_ID = "defers_once"
DAG_FILE = f'''
import os, shutil, subprocess
from datetime import timedelta
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseHook, BaseOperator, task

class Defers(BaseOperator):
    def execute(self, context):
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=1)), method_name="come_back")

    def come_back(self, context, event=None):
        print("came back from the triggerer")

@task
def look_around():
    print("kafka is at", BaseHook.get_connection("kafka_default").extra_dejson["bootstrap.servers"])
    print("spark is at", BaseHook.get_connection("spark_default").host)
    print("spark-submit is", shutil.which("spark-submit"))
    print("java is there:", os.path.exists(os.environ["JAVA_HOME"] + "/bin/java"))
    # As a detached Spark driver does, it leaves Airflow's session, and its parent soon ends.
    subprocess.Popen(["sleep", "600"], start_new_session=True)

with DAG("{DAG_ID}", schedule=None):
    Defers(task_id="defers") >> look_around()
'''


@pytest.fixture(scope="module")
def run_id(airflow: BreakableAirflow) -> str:
    """A finished run of a small DAG."""
    (airflow.dags / f"{DAG_ID}.py").write_text(DAG_FILE)
    airflow.api.wait_for_dag(DAG_ID)
    run_id = airflow.api.trigger(DAG_ID)
    wait_for_run(airflow.api, DAG_ID, run_id)
    return run_id


def test_all_components_are_healthy_once_it_is_started(airflow: BreakableAirflow) -> None:
    status = airflow.status()

    assert status["healthy"]
    assert {name: component["state"] for name, component in status["components"].items()} == dict.fromkeys(
        COMPONENTS, "healthy"
    )


@pytest.mark.parametrize(("conn_id", "conn_type"), [("kafka_default", "kafka"), ("spark_default", "spark")])
def test_its_connections_are_in_the_database_where_the_ui_shows_them(
    airflow: BreakableAirflow, conn_id: str, conn_type: str
) -> None:
    assert airflow.api("GET", f"/connections/{conn_id}")["conn_type"] == conn_type


def test_a_task_that_defers_runs_to_success(airflow: BreakableAirflow, run_id: str) -> None:
    assert airflow.api.task_states(DAG_ID, run_id) == {"defers": "success", "look_around": "success"}
    assert "came back from the triggerer" in task_log(airflow.api, DAG_ID, run_id, "defers")


def test_a_task_finds_kafka_and_spark_and_java(airflow: BreakableAirflow, run_id: str) -> None:
    log = task_log(airflow.api, DAG_ID, run_id, "look_around")
    kafka = json.loads(airflow.api("GET", "/connections/kafka_default")["extra"])

    assert f"kafka is at {kafka['bootstrap.servers']}" in log
    assert "spark is at local[2]" in log
    assert "spark-submit is /" in log
    assert "java is there: True" in log


@pytest.mark.usefixtures("run_id")
def test_none_of_airflows_own_examples_are_loaded(airflow: BreakableAirflow) -> None:
    assert [dag["dag_id"] for dag in airflow.api("GET", "/dags")["dags"]] == [DAG_ID]


def test_starting_it_again_keeps_the_same_processes(airflow: BreakableAirflow) -> None:
    before = airflow.component_pids()

    airflow.start()

    assert airflow.component_pids() == before


@pytest.mark.parametrize("name", ["scheduler", "triggerer"])
def test_a_killed_component_is_missed_and_can_be_restarted(airflow: BreakableAirflow, name: str) -> None:
    killed = airflow.component_pids()[name]
    psutil.Process(killed).kill()
    wait_for(lambda: not airflow.is_healthy(), f"the loss of the {name} to be noticed")

    restarted = airflow.restart_component(name)

    assert restarted != killed
    assert airflow.component_pids()[name] == restarted
    assert airflow.is_healthy()


def test_a_running_component_is_not_started_twice(airflow: BreakableAirflow) -> None:
    with pytest.raises(AssertionError, match=str(airflow.component_pids()["triggerer"])):
        airflow.restart_component("triggerer")


@pytest.mark.usefixtures("run_id")
@pytest.mark.slow
def test_stop_leaves_no_process_and_the_next_start_has_the_same_login(airflow: BreakableAirflow) -> None:
    password = airflow.password
    assert any("sleep 600" in process for process in processes_of(airflow.home)), "a process outside of the session"

    airflow.stop()

    assert processes_of(airflow.home) == []
    assert not airflow.status()["running"]

    airflow.start()

    assert airflow.password == password
    assert airflow.api("GET", f"/dags/{DAG_ID}/dagRuns")["total_entries"] == 1
