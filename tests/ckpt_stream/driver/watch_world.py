"""A run under watch, with a query of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import watch
from ckpt_stream.driver.batch_progress import BatchProgress, WrittenBatch
from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.driver.watch import Watch
from ckpt_stream.protocol.run_files.record_files import STOP
from ckpt_stream.protocol.run_files.run_record import RUNNING, RunRecord, path_of
from ckpt_stream.protocol.run_files.stop_requests import stop_request
from ckpt_stream.protocol.settings.config import StreamConfig

RUN = "20260101T000000.000000-t"
WAITING = {"message": "Waiting for data to arrive", "isDataAvailable": False}
BUSY = {"message": "Processing new data", "isDataAvailable": True}


class Query:
    """A query that is active until its steps are done or it is stopped; each look at it runs the next step."""

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.status: dict[str, Any] = BUSY
        self.stops = 0
        self.error: BaseException | None = None
        self.report: dict[str, Any] | None = None
        #: Happens after the last look, as the query ends.
        self.as_it_ends: Callable[[], Any] = lambda: None
        self._jsq = SimpleNamespace(lastProgress=self._last_progress)

    def _last_progress(self) -> Any:
        report = self.report
        if report is None:
            return None
        return SimpleNamespace(batchId=lambda: report["batchId"], json=lambda: json.dumps(report))

    @property
    def isActive(self) -> bool:
        if self.stops or not self.steps:
            self.as_it_ends()
            return False
        self.steps.pop(0)()
        return True

    def exception(self) -> BaseException | None:
        return self.error

    def stop(self) -> None:
        self.stops += 1


class World:
    """A run under watch."""

    def __init__(self, files: FsspecFiles, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        without_pauses(monkeypatch)
        self.files, self.query, self.progress = files, Query(), BatchProgress()
        self.record = RunRecord(RUN, "orders", "t")
        self.record.enter(RUNNING)
        self.mirrored: list[tuple[str, Any]] = []
        #: The batches in the run record whenever the mirror was asked to commit what is due.
        self.looks_of_mirror: list[list[int]] = []
        mirror: Any = SimpleNamespace(
            batch_written=lambda batch, end: self.mirrored.append(("written", batch)),
            batch_committed=lambda batch: self.mirrored.append(("committed", batch)),
            commit_if_due=lambda: self.looks_of_mirror.append(self.noted()),
        )
        config = StreamConfig(
            name="orders", checkpoint=str(files.root), sink="orders-out", kafka={"bootstrap.servers": "localhost:9092"},
            **{"source": ("orders",), **settings},
        )  # fmt: skip
        self.watch = Watch(self.query, self.progress, files, Heartbeat(files, self.record), mirror, config, ())

    def until_the_end(self, *steps: Callable[[], None]) -> str:
        self.query.steps = list(steps)
        return self.watch.until_the_end()

    def write(self, batch: int, end: Any = None) -> None:
        """The sink has written a batch."""
        self.progress.current = None
        end = end or {"orders": {"0": 10 * batch + 10}}
        lane = {"lane": 0, "records": 4, "dead_letters": 1, "skipped": False, "differs": False}
        self.progress.written.append(WrittenBatch(batch, "begun", "ended", {}, end, (lane,)))

    def commit(self, batch: int) -> None:
        """Spark has written the batch's commit-log entry, and reports the batch."""
        self.files.write(f"commits/{batch}", "v1\n{}")
        self.report(batch)

    def report(self, batch: int, **more: Any) -> None:
        self.query.report = {"batchId": batch, "numInputRows": 5, **more}

    def stop_requested(self) -> None:
        self.files.write(STOP, stop_request("ann", "maintenance", RUN))

    def noted(self) -> list[int]:
        """The batches in the run record that others can read."""
        text = self.files.read(path_of(RUN))
        return [batch["batch"] for batch in RunRecord.from_json(text).batches] if text else []


def nothing() -> None:
    """A look at which nothing has happened."""


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look follow the one before at once."""
    for name in ("BUSY_SECONDS", "IDLE_SECONDS", "STOP_LOOK_SECONDS"):
        monkeypatch.setattr(watch, name, 0.0)
