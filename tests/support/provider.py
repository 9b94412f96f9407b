"""One task per DAG, each with the stream that the run's conf describes: what tests trigger through Airflow's REST API."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.runs import current_run, run_names
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.supervision.intent_files import read_intent
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.run_files.restart_history import read_history
from ckpt_stream.protocol.run_files.run_record import RunRecord
from tests.support.breakable_airflow import BreakableAirflow
from tests.support.dag_runs import task_log, wait_for_run
from tests.support.kafka_io import produce, read_all
from tests.support.waiting import wait_for

APPLICATIONS = Path(__file__).parents[2] / "spark"

DAGS = '''
import os, signal
from datetime import timedelta
from airflow.sdk import DAG
from airflow_ckpt import (
    CheckpointProgressSensor, ExactlyOnceVerifyOperator, FixedDelay, SparkStreamResumeOperator, SparkStreamStopOperator,
    SparkStreamSubmitOperator, SparkStreamSuperviseOperator, Stream,
)

c = "{{ dag_run.conf['%s'] }}"
stream = Stream(
    name=c % "name", application="APPLICATIONS/copy_topic.py", checkpoint=c % "checkpoint", source=c % "source",
    sink=c % "sink", kafka_conn_id=c % "kafka_conn_id", start="earliest", trigger_interval="500 ms",
    restart=FixedDelay(attempts=3, delay=timedelta(seconds=1)), heartbeat="1 s", max_offsets_per_batch=50,
    env={"CKPT_CRASH": "{{ dag_run.conf.get('crash', '') }}"},
)

# Of the kind that docs/resume.md recommends: on a busy machine Airflow's scheduler fails a task that was deferred, now and
# then. What the operators fail is not tried again.
RETRY = {"retries": 2, "retry_delay": timedelta(seconds=5)}

class DyingSubmit(SparkStreamSubmitOperator):
    """Its process is killed between the submit and its answer, once."""

    def execute(self, context):
        from airflow_ckpt.runners.process import ProcessRunner

        start, marker = ProcessRunner.start, context["dag_run"].conf["died"]

        def start_and_die(runner, launch, token):
            handle = start(runner, launch, token)
            if not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return handle

        ProcessRunner.start = start_and_die
        return super().execute(context)

with DAG("submit", schedule=None, default_args=RETRY):
    SparkStreamSubmitOperator(task_id="it", stream=stream, deferrable=True, poll_interval="1 s")
with DAG("submit_here", schedule=None, default_args=RETRY):
    SparkStreamSubmitOperator(task_id="it", stream=stream, deferrable=False, poll_interval="1 s", wait_for="first_batch")
with DAG("dying_submit", schedule=None, default_args=RETRY):
    DyingSubmit(task_id="it", stream=stream, deferrable=True, poll_interval="1 s", retry_delay=timedelta(0))
with DAG("progress", schedule=None, default_args=RETRY):
    CheckpointProgressSensor(
        task_id="it", stream=stream, deferrable=True, poll_interval="1 s", batches="{{ dag_run.conf['batches'] }}"
    )
with DAG("resume", schedule=None, default_args=RETRY):
    SparkStreamResumeOperator(task_id="it", stream=stream, deferrable=True, poll_interval="1 s")
with DAG("supervise", schedule=None, default_args=RETRY):
    SparkStreamSuperviseOperator(task_id="it", stream=stream, deferrable=True, poll_interval="1 s", until=3)
with DAG("stop", schedule=None, default_args=RETRY):
    SparkStreamStopOperator(task_id="it", stream=stream, deferrable=True, poll_interval="1 s")
with DAG("verify", schedule=None, default_args=RETRY):
    ExactlyOnceVerifyOperator(task_id="it", stream=stream)
with DAG("verify_by_spark", schedule=None, default_args=RETRY):
    ExactlyOnceVerifyOperator(task_id="it", stream=stream, engine="spark", deferrable=True, poll_interval="1 s")
with DAG("recompute", schedule=None, default_args=RETRY):
    ExactlyOnceVerifyOperator(task_id="it", stream=stream, depth="recompute", deferrable=True, poll_interval="1 s")
with DAG("kill_on_end", schedule=None, default_args=RETRY):
    CheckpointProgressSensor(
        task_id="it", stream=stream, deferrable=True, poll_interval="1 s", batches=1000, on_kill_action="kill"
    )
'''


def write_dags(airflow: BreakableAirflow) -> None:
    """Give an Airflow these DAGs and wait until it has read them."""
    airflow.dags.mkdir(parents=True, exist_ok=True)
    (airflow.dags / "streams_under_test.py").write_text(DAGS.replace("APPLICATIONS", str(APPLICATIONS)))
    airflow.api.wait_for_dag("kill_on_end", deadline_s=90)


@dataclass
class ProvidedStream:
    """A stream that Airflow runs."""

    airflow: BreakableAirflow
    kafka: Mapping[str, Any]
    folder: Path
    source: str
    sink: str
    name: str = field(default_factory=lambda: f"stream-{uuid.uuid4().hex[:8]}")
    kafka_conn_id: str = "kafka_default"

    @property
    def files(self) -> FsspecFiles:
        return FsspecFiles(str(self.folder / "checkpoint"))

    def feed(self, *values: str) -> None:
        produce(self.kafka, self.source, [(value, value) for value in values])

    def values(self) -> list[str]:
        return sorted((r.value or b"").decode() for r in read_all(self.kafka, self.sink))

    def trigger(self, dag: str, **conf: Any) -> str:
        """Start a run of a DAG for this stream."""
        about = {
            "name": self.name,
            "checkpoint": f"file://{self.folder / 'checkpoint'}",
            "source": self.source,
            "sink": self.sink,
            "kafka_conn_id": self.kafka_conn_id,
        }
        return self.airflow.api.trigger(dag, {**about, **conf})

    def do(self, dag: str, *, seconds: float = 180, expect: str = "success", **conf: Any) -> str:
        """Run a DAG to its end; its log."""
        run = self.trigger(dag, **conf)
        state = wait_for_run(self.airflow.api, dag, run, deadline_s=seconds)
        log = self.log(dag, run)
        assert state == expect, log[-6000:]
        return log

    def log(self, dag: str, run: str) -> str:
        return task_log(self.airflow.api, dag, run, "it")

    def task_state(self, dag: str, run: str) -> str | None:
        return self.airflow.api.task_states(dag, run)["it"]

    def xcom(self, dag: str, run: str, key: str) -> Any:
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/it/xcomEntries/{key}"
        return self.airflow.api("GET", path, params={"deserialize": False})["value"]

    def wait_for_task(self, dag: str, run: str, state: str, seconds: float = 60) -> None:
        wait_for(lambda: self.task_state(dag, run) == state, f"{dag} to be {state}", seconds=seconds)

    def runs(self) -> list[str]:
        return run_names(self.files)

    def run(self) -> RunRecord:
        found = current_run(self.files)
        assert found is not None
        return found

    def submits(self) -> list[str]:
        """The kinds of the restart history's entries."""
        return [str(entry["kind"]) for entry in read_history(self.files)]

    def batch(self) -> int | None:
        return read_checkpoint(self.files, with_metadata=False).committed

    def wait_for_values(self, *values: str, seconds: float = 60) -> None:
        wait_for(lambda: self.values() == sorted(values), f"{values} in the sink", seconds=seconds)

    def intent(self) -> dict[str, Any]:
        found = read_intent(self.files)
        return asdict(found) if found else {}

    def end(self) -> None:
        """Whatever still runs of this stream is ended."""
        handle = self.intent().get("handle")
        if handle:
            ProcessRunner(Path(handle["details"]["folder"]).parent).kill(Handle.from_dict(handle), wait=5)
