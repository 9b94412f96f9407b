"""Every example DAG, run for real: Airflow's REST API triggers it, Spark and Kafka do the work."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.runs import current_run, run_names
from airflow_ckpt.local.airflow.standalone import AirflowStandalone
from airflow_ckpt.local.processes.ports import free_port
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.supervision.intent_files import read_intent
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.run_files import run_record
from tests.airflow_ckpt.runners.fakes import Answer, Server, serving
from tests.support.dag_runs import task_log, wait_for_run
from tests.support.kafka_io import produce, read_all
from tests.support.unscheduled_airflow import UnscheduledAirflow

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DAGS = Path(__file__).parents[2] / "dags"
EXAMPLES = ("ip_count_exactly_once", "stream_watchdog", "drain_and_verify", "word_count_restore", "crash_drill")
#: Four drivers one after the other, and three pauses of ten seconds.
LONGEST = 480


class Examples:
    """An Airflow that has the example DAGs, and the streams they leave behind."""

    def __init__(self, airflow: AirflowStandalone, kafka: dict[str, Any], alerts: Server) -> None:
        self.airflow, self.kafka, self.api, self._alerts = airflow, kafka, airflow.api, alerts

    def alerts(self) -> list[tuple[str, str, str]]:
        """What the web hook was sent: who sent it, about which stream, and what had happened."""
        return [(r.body["dag"], r.body["stream"], r.body["event"]) for r in self._alerts.requests]

    def files(self, stream: str) -> FsspecFiles:
        return FsspecFiles(str(self.airflow.home / "checkpoints" / stream))

    def run(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        return self.api.trigger(dag, conf or {})

    def ended(self, dag: str, run: str) -> tuple[str, dict[str, str | None]]:
        return wait_for_run(self.api, dag, run, deadline_s=LONGEST), self.api.task_states(dag, run)

    def pause(self, dag: str) -> None:
        self.api("PATCH", f"/dags/{dag}", {"is_paused": True}, params={"update_mask": "is_paused"})

    def explain(self, dag: str, run: str) -> str:
        """The end of the log of every task that failed."""
        states = self.api.task_states(dag, run)
        failed = [task for task, state in states.items() if state == "failed"]
        return "\n".join(
            [str(states), *(f"--- {t} ---\n{task_log(self.api, dag, run, t)[-4000:]}" for t in failed if "[" not in t)]
        )

    def runs(self, dag: str) -> list[str]:
        return [run["dag_run_id"] for run in self.api("GET", f"/dags/{dag}/dagRuns")["dag_runs"]]

    def logs(self, dag: str, task: str) -> str:
        """What a task logged in all runs of a DAG, when they are over."""
        runs = self.runs(dag)
        for run in runs:
            wait_for_run(self.api, dag, run, deadline_s=LONGEST)
        return "\n".join(task_log(self.api, dag, run, task) for run in runs)

    def create(self, *names: str, partitions: int = 2) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(self.kafka)
        for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            future.result(30)

    def topics(self) -> list[str]:
        from confluent_kafka.admin import AdminClient

        return list(AdminClient(self.kafka).list_topics(timeout=30).topics)

    def end_drivers(self) -> None:
        for folder in sorted((self.airflow.home / "checkpoints").glob("*")):
            intent = read_intent(FsspecFiles(str(folder)))
            handle = intent.handle if intent else None
            if handle:
                ProcessRunner(Path(handle["details"]["folder"]).parent).kill(Handle.from_dict(handle), wait=5)


@pytest.fixture(scope="module")
def examples(kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    home = tmp_path_factory.mktemp("examples") / "home"
    airflow = UnscheduledAirflow(home, dags=DAGS, port=free_port(), kafka_config=kafka.client_config())
    with serving(lambda request: Answer()) as web_hook, pytest.MonkeyPatch.context() as environment:
        environment.setenv("CKPT_ALERTS", "web_hook")
        airflow.start()
        found = Examples(airflow, kafka.client_config(), web_hook)
        try:
            connection = {"connection_id": "web_hook", "conn_type": "http", "host": web_hook.url, "password": "hunter2"}
            found.api("POST", "/connections", connection)
            for dag in EXAMPLES:
                found.api.wait_for_dag(dag, deadline_s=120)
            yield found
        finally:
            found.end_drivers()
            airflow.stop()


def lines(count: int, first_second: int = 0) -> list[tuple[str, str]]:
    """Access-log lines, ten a second, and one long after them that closes their windows."""
    template = '10.0.0.{ip} - - [01/Jan/2026:{at} +0000] "GET / HTTP/1.1" 200 12'

    def at(second: int) -> str:
        return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"

    found = [template.format(ip=n % 7, at=at(first_second + n // 10)) for n in range(count)]
    return [(line.split()[0], line) for line in [*found, template.format(ip=9, at=at(first_second + 7200))]]


def windows(count: int) -> int:
    return len({(n % 7, n // 10 // 5) for n in range(count)})


@pytest.fixture(scope="module")
def beside(examples: Examples) -> dict[str, str]:
    """Two DAGs that run while the main one does, as they would in any Airflow."""
    examples.create("copy_source", "copy_sink")
    produce(examples.kafka, "copy_source", [(str(n % 5), str(n)) for n in range(300)])
    return {dag: examples.run(dag) for dag in ("drain_and_verify", "crash_drill")}


@pytest.mark.usefixtures("beside")
def test_the_main_dag_survives_a_kill_and_the_watchdog_brings_its_stream_back(examples: Examples) -> None:
    examples.create("ip_count_source", "ip_count_sink")
    produce(examples.kafka, "ip_count_source", lines(400))
    marker = examples.airflow.home / "killed"
    order = {"point": "mid_produce", "kill": "both", "batch": 1, "once": str(marker)}
    run = examples.run(
        "ip_count_exactly_once", {"trigger_seconds": 2, "max_offsets": 200, "batches": 4, "crash": json.dumps(order)}
    )
    state, tasks = examples.ended("ip_count_exactly_once", run)
    assert state == "success", examples.explain("ip_count_exactly_once", run)
    assert examples.runs("ip_count_exactly_once") == [run], "another run has started or resumed the stream"
    assert marker.exists(), "the fault did not hit"
    # The task that looked next has noticed it: the driver may be dead before the submit has seen its first batch.
    assert "failed" in (tasks["submit"], tasks["progress"])
    assert "failed" not in (tasks["resume"], tasks["catch_up"])
    assert tasks["resume"] == tasks["verify_again"] == "success"
    assert tasks["stop"] == "skipped"
    rows = [json.loads(r.value or b"{}") for r in read_all(examples.kafka, "ip_count_sink")]
    assert len(rows) == len({(row["ip"], row["window_start"]) for row in rows}) == windows(400)

    # Else it would bring the stream back itself, at the full hour.
    examples.pause("ip_count_exactly_once")

    # The stream goes on when the run is over. The watchdog finds it dead, resumes it, and verifies what is new.
    files = examples.files("ip_count")
    found = current_run(files)
    assert found is not None
    assert found.state == run_record.RUNNING
    for pid in (found.driver["jvm_pid"], found.driver["pid"]):
        os.kill(int(pid), signal.SIGKILL)
    assert examples.alerts() == []
    run = examples.run("stream_watchdog", {"stream": "ip_count"})
    state, tasks = examples.ended("stream_watchdog", run)
    assert state == "success", examples.explain("stream_watchdog", run)
    assert examples.runs("stream_watchdog") == [run]
    assert tasks["ip_count.resume"] == tasks["ip_count.verify"] == "success"
    # The parameters did not select the other stream.
    assert tasks["word_count.resume"] == "skipped"
    assert "ip_count is LOST" in examples.logs("stream_watchdog", "ip_count.status")
    assert "2 of 3" in examples.logs("stream_watchdog", "ip_count.resume")
    assert len(run_names(files)) == 3
    sent = [("stream_watchdog", "ip_count", event) for event in ("failed", "resumed")]
    assert examples.alerts() == sent
    after = current_run(files)
    assert after is not None
    assert after.state == run_record.RUNNING

    # On a healthy stream the next round changes nothing, and verifies only what came since.
    run = examples.run("stream_watchdog")
    state, tasks = examples.ended("stream_watchdog", run)
    assert state == "success", examples.explain("stream_watchdog", run)
    # The other stream was never started.
    assert tasks["word_count.resume"] == "skipped"
    assert examples.alerts() == sent, "an alert about a healthy stream"
    assert "nothing to do" in task_log(examples.api, "stream_watchdog", run, "ip_count.resume")
    assert "after batch" in task_log(examples.api, "stream_watchdog", run, "ip_count.verify")
    assert len(run_names(files)) == 3
    # Else its schedule would bring the stream back once more.
    examples.pause("stream_watchdog")
    examples.end_drivers()


def test_the_dags_drill_drain_and_word_count_succeed(examples: Examples, beside: dict[str, str]) -> None:
    word_count = examples.run("word_count_restore")

    state, _ = examples.ended("drain_and_verify", beside["drain_and_verify"])
    assert state == "success", examples.explain("drain_and_verify", beside["drain_and_verify"])
    assert sorted(int(r.value or 0) for r in read_all(examples.kafka, "copy_sink")) == list(range(300))

    state, tasks = examples.ended("crash_drill", beside["crash_drill"])
    assert state == "success", examples.explain("crash_drill", beside["crash_drill"])
    assert tasks["check_drill"] == tasks["clean_up"] == "success"
    drill = task_log(examples.api, "crash_drill", beside["crash_drill"], "check_drill")
    assert "after_last_lane: LOST" in drill, "the fault did not hit"
    assert not [topic for topic in examples.topics() if topic.startswith("crash_drill_")]

    # What has arrived since is drained by the next run, which verifies only that.
    produce(examples.kafka, "copy_source", [(str(n % 5), str(n)) for n in range(300, 400)])
    newest = read_checkpoint(examples.files("copy_hourly")).committed
    run = examples.run("drain_and_verify")
    state, _ = examples.ended("drain_and_verify", run)
    assert state == "success", examples.explain("drain_and_verify", run)
    assert f"batch {newest} " in task_log(examples.api, "drain_and_verify", run, "verify")
    assert sorted(int(r.value or 0) for r in read_all(examples.kafka, "copy_sink")) == list(range(400))

    # Three failures are survived ten seconds apart; the fourth is for good, and the table is right.
    state, tasks = examples.ended("word_count_restore", word_count)
    assert state == "success", examples.explain("word_count_restore", word_count)
    assert tasks["count_words"] == "failed"
    assert tasks["check_table"] == "success"
    log = task_log(examples.api, "word_count_restore", word_count, "count_words")
    assert "3 of 3" in log
    assert "fixed-delay" in log, "the strategy that gave the stream up"


def test_every_field_of_a_trigger_form_has_a_description(examples: Examples) -> None:
    for dag in EXAMPLES:
        params = examples.api("GET", f"/dags/{dag}/details")["params"]
        assert params, dag
        for name, param in params.items():
            assert param.get("description") or param["schema"].get("description"), f"{dag}: {name} has no description"
            assert param["schema"].get("type"), f"{dag}: {name} has no type"


def test_the_streams_are_assets(examples: Examples) -> None:
    names = [asset["name"] for asset in examples.api("GET", "/assets", params={"limit": 100})["assets"]]
    assert {"stream:ip_count", "stream:word_count", "stream:copy_hourly"} <= set(names)


def test_a_bad_value_in_the_form_is_refused(examples: Examples) -> None:
    from airflow_ckpt.exceptions import StackError

    with pytest.raises(StackError, match="400"):
        examples.run("crash_drill", {"point": "after_lunch"})
