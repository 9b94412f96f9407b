"""The provider on a real Airflow, broker and Spark: submit, watch, kill, resume, stop, and never two drivers of one stream."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ckpt_stream.protocol.run_files import run_record
from tests.support.breakable_airflow import BreakableAirflow
from tests.support.dag_runs import wait_for_run
from tests.support.provider import ProvidedStream, write_dags
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def dags(airflow: BreakableAirflow) -> BreakableAirflow:
    write_dags(airflow)
    return airflow


@pytest.fixture
def provided(dags: BreakableAirflow, kafka: Any, topics: Callable[..., str], tmp_path: Path) -> Any:
    """A stream between two new topics; its driver is gone after the test."""
    stream = ProvidedStream(dags, kafka.client_config(), tmp_path, topics("source", 2), topics("sink", 2))
    yield stream
    stream.end()


def command(name: str, stream: ProvidedStream) -> dict[str, Any]:
    """The answer of `airflow-ckpt <name> <checkpoint> --json` in a shell that knows where Airflow is."""
    program = Path(sys.executable).with_name("airflow-ckpt")
    argv = [str(program), name, f"file://{stream.folder / 'checkpoint'}", "--json"]
    env = {**os.environ, "AIRFLOW_HOME": str(stream.airflow.home)}
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False, env=env)
    assert ended.stdout, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def kill_driver(stream: ProvidedStream) -> None:
    """kill -9 both halves of the driver: the JVM and its Python child."""
    driver = stream.run().driver
    for pid in (driver["jvm_pid"], driver["pid"]):
        os.kill(int(pid), signal.SIGKILL)


def test_a_stream_that_is_submitted_killed_resumed_and_stopped_writes_every_record_once(
    provided: ProvidedStream,
) -> None:
    provided.feed("a", "b", "c")
    run = provided.trigger("submit")
    assert wait_for_run(provided.airflow.api, "submit", run, deadline_s=180) == "success", provided.log("submit", run)
    assert str(provided.xcom("submit", run, "spark_ui")).strip('"').startswith("http://")
    first = provided.run()
    assert first.state == run_record.RUNNING
    provided.wait_for_values("a", "b", "c")

    # A second submit while one runs attaches to it.
    log = provided.do("submit")
    assert "attached" in log
    assert provided.runs() == [first.run]
    assert "nothing to do" in provided.do("resume")

    # The sensor fails at once when the driver is killed, and says why.
    waiting = provided.trigger("progress", batches=1000)
    provided.wait_for_task("progress", waiting, "deferred")
    kill_driver(provided)
    assert wait_for_run(provided.airflow.api, "progress", waiting, deadline_s=60) == "failed"
    log = provided.log("progress", waiting)
    assert "LOST" in log
    assert "SIGKILL" in log

    # The resume goes on at the checkpoint; the first new commit ends it.
    provided.feed("d", "e")
    resumed = provided.trigger("resume")
    assert wait_for_run(provided.airflow.api, "resume", resumed, deadline_s=180) == "success"
    assert "1 of 3" in provided.log("resume", resumed)
    provided.wait_for_values("a", "b", "c", "d", "e")
    assert len(provided.runs()) == 2

    # Clearing the resume starts nothing twice.
    provided.airflow.api(
        "POST", "/dags/resume/clearTaskInstances", {"dag_run_id": resumed, "dry_run": False, "only_failed": False}
    )
    wait_for(lambda: provided.airflow.api.run_state("resume", resumed) != "success", "the clear to take effect")
    assert wait_for_run(provided.airflow.api, "resume", resumed, deadline_s=120) == "success"
    assert len(provided.runs()) == 2
    assert provided.submits() == ["submit", "attach", "restart"]

    assert "CLEAN" in provided.do("verify")
    provided.do("stop")
    assert provided.run().state == run_record.STOPPED
    assert "STOPPED" in provided.do("resume")
    assert provided.values() == ["a", "b", "c", "d", "e"]


def test_a_retry_after_the_worker_died_between_submit_and_answer_finds_the_driver_and_starts_no_second_one(
    provided: ProvidedStream,
) -> None:
    provided.feed("a")
    died = provided.folder / "died"
    run = provided.trigger("dying_submit", died=str(died))
    assert wait_for_run(provided.airflow.api, "dying_submit", run, deadline_s=240) == "success"
    assert died.exists(), "the fault did not hit"
    provided.wait_for_values("a")
    assert len(provided.runs()) == 1
    assert provided.submits() == ["submit"]
    # The retry found the driver that the first try had started, by its token.
    assert provided.intent()["token"] == provided.run().token
    assert provided.intent()["handle"]["token"] == provided.run().token

    # The same stream by hand, without Airflow: lost, resumed from what the submit has left beside the checkpoint, stopped.
    kill_driver(provided)
    wait_for(lambda: command("status", provided)["state"] == "LOST", "LOST", seconds=30)
    provided.feed("b")
    assert command("resume", provided)["state"] in ("RUNNING", "IDLE")
    provided.wait_for_values("a", "b")
    assert provided.submits() == ["submit", "restart"]
    assert command("history", provided)["runs"][-1]["state"] == "RUNNING"
    assert command("stop", provided)["state"] == "STOPPED"


def test_supervision_outlives_a_triggerer_and_a_scheduler_and_does_not_restart_the_stream(
    provided: ProvidedStream,
) -> None:
    provided.feed("a")
    run = provided.trigger("supervise")
    provided.wait_for_task("supervise", run, "deferred", seconds=120)
    provided.wait_for_values("a", seconds=120)
    for component in ("triggerer", "scheduler"):
        pid = provided.airflow.component_pids()[component]
        os.kill(pid, signal.SIGKILL)
        # A kill is an order; the process is gone a moment later.
        wait_for(lambda pid=pid: pid not in provided.airflow.component_pids().values(), f"the {component} to be gone")
        provided.airflow.restart_component(component)
    for value in ("b", "c", "d"):
        seen = provided.batch()
        provided.feed(value)
        wait_for(lambda seen=seen: provided.batch() != seen, "another batch", seconds=60)
    assert wait_for_run(provided.airflow.api, "supervise", run, deadline_s=120) == "success"
    assert len(provided.runs()) == 1
    assert provided.values() == ["a", "b", "c", "d"]

    # A user who ends a deferred task whose setting is to kill the stream with the task.
    watching = provided.trigger("kill_on_end")
    provided.wait_for_task("kill_on_end", watching, "deferred")
    # A trigger that the triggerer has not started yet is not called when its task is ended.
    wait_for(lambda: "waiting for 1000" in provided.log("kill_on_end", watching), "the trigger to watch", seconds=60)
    provided.airflow.api(
        "PATCH",
        f"/dags/kill_on_end/dagRuns/{watching}/taskInstances/it",
        {"new_state": "failed"},
        params={"update_mask": "new_state"},
    )
    wait_for(lambda: provided.intent().get("killed"), "the driver to be killed on request", seconds=60)
    pid = int(provided.run().driver["pid"])
    wait_for(lambda: not psutil.pid_exists(pid), "the driver to be gone", seconds=30)


def test_a_spark_job_and_a_recomputation_find_what_a_plain_producer_added(provided: ProvidedStream) -> None:
    from tests.support.kafka_io import produce

    provided.feed("a", "b", "c")
    provided.do("submit")
    provided.wait_for_values("a", "b", "c")
    for dag in ("verify_by_spark", "recompute"):
        assert "CLEAN" in provided.do(dag)
    # What the jobs were given and gave is gone; the two verdicts stay.
    kinds = [name.rpartition(".")[2] for name in provided.files.names("_ckpt/verdicts")]
    assert sorted(kinds) == ["html", "html", "json", "json"]
    produce(provided.kafka, provided.sink, [("x", "foreign")])
    provided.feed("d")
    provided.wait_for_values("a", "b", "c", "d", "foreign")
    for dag in ("verify_by_spark", "recompute"):
        log = provided.do(dag, expect="failed")
        assert "violated" in log, "the reason of the task's failure"
        assert "VIOLATED" in log, "the table"


def test_a_stream_on_a_secured_kafka_leaves_its_password_nowhere(
    dags: BreakableAirflow, kafka_secure: Any, tmp_path: Path
) -> None:
    from tests.support.kafka_io import create_topic

    config = kafka_secure.client_config(secure=True)
    password = str(config["sasl.password"])
    dags.api(
        "POST", "/connections", {"connection_id": "kafka_secure", "conn_type": "kafka", "extra": json.dumps(config)}
    )
    admin = kafka_secure.client_config()
    stream = ProvidedStream(
        dags, config, tmp_path, create_topic(admin, "source"), create_topic(admin, "sink"), kafka_conn_id="kafka_secure"
    )
    try:
        stream.feed("a", "b")
        stream.do("submit_here")
        stream.wait_for_values("a", "b")
        assert [p.pid for p in psutil.process_iter() if password in " ".join(_cmdline(p))] == []
        # The driver lives, and has no need any more of the file that it got its secrets in.
        assert list(dags.home.rglob("secrets.conf")) == []
        assert stream.run().state == "RUNNING"
        stream.do("verify")
        stream.do("stop")
        assert stream.values() == ["a", "b"]
    finally:
        stream.end()
    holders = [
        str(path)
        for place in (dags.home, tmp_path)
        for path in place.rglob("*")
        if path.is_file() and password.encode() in path.read_bytes()
    ]
    # `connections.json` is how the fixture itself gave other connections to Airflow; it never held this one.
    assert holders == []
    # The search can find things: what is no secret is there.
    assert any(stream.name.encode() in p.read_bytes() for p in dags.home.rglob("*.log") if p.is_file())


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
