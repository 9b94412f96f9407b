"""A stream whose drivers are ordinary commands of this machine, and the run records that real drivers would write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow.sdk import Connection
from airflow.sdk.bases.hook import BaseHook

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.hooks.connections import Connections, spark_target
from airflow_ckpt.hooks.launch import make_launch
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision import control as control_module
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.intent_files import read_intents
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.driver.batch_progress import WrittenBatch
from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.machine.process_identity import this_driver
from ckpt_stream.protocol.run_files.record_files import now
from ckpt_stream.protocol.run_files.run_record import Failure, RunRecord, run_name
from ckpt_stream.protocol.settings.config import from_json
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.samples import a_stream, start_with
from tests.support.waiting import wait_for

KAFKA = {"bootstrap.servers": "kafka.example:9092", "sasl.username": "orders", "sasl.password": "not stored"}
ENDS_WELL, FAILS, RUNS = ("true",), ("false",), ("sleep", "600")


class Site:
    """One stream, its checkpoint and the work folder of its drivers below one folder."""

    def __init__(self, root: Path, applications: Path) -> None:
        (applications / "orders.py").write_text("print('orders')\n")
        self.stream: Stream = a_stream(checkpoint=f"file://{root}/checkpoint", lanes=2, application_version="7")
        self.files = FsspecFiles(f"{root}/checkpoint")
        self.settings = Settings(root / "work", (applications,), ("/opt/jars/kafka.jar",), 10.0)
        self.runner = ProcessRunner(self.settings.work_folder, self.stream.checkpoint)
        #: What runs in place of the next driver.
        self.command: tuple[str, ...] = ENDS_WELL

    def control(self, by: str, *, kafka: dict[str, Any] | None = None) -> StreamControl:
        return StreamControl(StreamAccess(self.stream, self.files, kafka, self.runner), self._launch, by)

    def _launch(self, order: LaunchRequest) -> Launch:
        spark = Connection(conn_id="spark_default", conn_type="spark", host="local[*]")
        connections = Connections(KAFKA, spark_target(spark, "spark_default"))
        with patch.object(BaseHook, "get_connection", staticmethod(lambda name: spark)):
            launch = make_launch(self.stream, order, connections, self.runner, self.settings)
        return replace(launch, argv=self.command)

    @contextmanager
    def without_kafka(self) -> Iterator[None]:
        """Preflight finds nothing that speaks against a start."""
        topic = TopicEnds({0: 0}, {0: 1}, {0: 1})
        with patch.object(
            control_module,
            "read_start_conditions",
            start_with(topics={"orders_in": topic}),
        ):
            yield

    @property
    def token(self) -> str:
        """Of the newest driver."""
        return next(read_intents(self.files)).token

    def wait_for_the_end(self, token: str) -> None:
        note = self.settings.work_folder / token / "exit.json"
        wait_for(note.exists, "the driver's exit status", 20)

    def end(self) -> None:
        """End whatever still runs."""
        for folder in self.settings.work_folder.glob("*"):
            if (handle := self.runner.find(folder.name)) is not None:
                self.runner.kill(handle)


def write_run(site: Site, *states: str, failure: Failure | None = None, batches: int = 0) -> RunRecord:
    """The record of the newest driver's run, with every field that a driver fills in."""
    settings = asdict(from_json(json.dumps(site.stream.document(KAFKA, site.token))))
    del settings["accepted_loss"]
    record = RunRecord(
        run=run_name(datetime.now(UTC), site.token),
        stream=site.stream.name,
        token=site.token,
        driver=this_driver(os.getpid()),
        spark={"application_id": "local-1794944818086", "ui": "http://worker-1.example:4040", "version": "4.0.0"},
        settings={**settings, "kafka": {"bootstrap.servers": KAFKA["bootstrap.servers"]}},
        heartbeat_seconds=2.0,
    )
    heart = Heartbeat(site.files, record)
    for state in states:
        record.enter(state)
        heart.save()
        if state == "RUNNING":
            record.query_id = "6f412f34-bb6b-4ac9-89f5-2feca2991dc9"
            record.reconciliation = "clean resume after batch 2"
            for batch in range(batches):
                record.add_batch(a_batch(batch))
            record.watched = record.idle = now()
    record.failure, record.stopping = failure, record.state == "STOPPED"
    heart.save()
    return record


def a_batch(number: int) -> dict[str, Any]:
    """A batch of two lanes as the driver notes it."""
    lanes = [{"lane": lane, "records": 5, "dead_letters": lane, "skipped": 0, "differs": False} for lane in range(2)]
    offsets = [{"orders": {"0": 10 * (number + more)}} for more in range(2)]
    done = WrittenBatch(number, now(), now(), offsets[0], offsets[1], tuple(lanes))
    return {
        **done.as_record(),
        "input_rows": 10,
        "durations_ms": {"triggerExecution": 250, "addBatch": 200},
        "lag": 3,
        "malformed": 1,
    }
