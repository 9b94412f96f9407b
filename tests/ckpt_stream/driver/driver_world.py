"""A stream whose driver runs on a Kafka in memory, with queries of the test's own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import driver
from ckpt_stream.driver.driver import Driver
from ckpt_stream.driver.source_loss import LossBatch
from ckpt_stream.errors import DataLost
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.machine.process_identity import this_driver
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.run_files.run_record import (
    FINISHED,
    RunRecord,
    path_of,
)  # fmt: skip
from ckpt_stream.protocol.settings.config import StreamConfig
from tests.ckpt_stream.moving import QUERY, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker

EARLIER, LATER = "20250101T000000.000000-earlier", "99990101T000000.000000-late"
POISON_TEXT = 'ckpt-poison:{"topic":"orders","partition":0,"offset":29,"once":true,"reason":"the word ERROR"}'


class NotedWrites(FsspecFiles):
    """Notes what is written, with the state where that is a run record."""

    def write(self, name: str, text: str) -> None:
        super().write(name, text)
        self.__dict__.setdefault("written", []).append(
            RunRecord.from_json(text).state if name.startswith("_ckpt/runs/") else name
        )


class World:
    """A stream from `orders` to `orders-out`, and what its driver does with its queries."""

    def __init__(self, broker: FakeBroker, files: NotedWrites, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self.files = broker, files
        self.out = broker.topic("orders-out")
        broker.topic("orders")
        #: What happens while a query is watched; its result is the state in which the query ends.
        self.happens: Callable[[Any], str] = lambda sink: FINISHED
        self.while_mirror_is_made: Callable[[], None] = lambda: None
        self.loss_batches: list[LossBatch] = []
        #: Whether the driver said that the batch in doubt is partly in the sink.
        self.partly_in_sink: list[bool] = []
        self.find_lost: Callable[[], tuple[Any, ...]] = tuple
        self.started: list[Any] = []
        self.mirrored: list[Any] = []
        self.closed: list[str] = []
        #: The offsets from which the queries continue.
        self.continues_at: Any = None
        #: Properties of the Spark session.
        self.spark: dict[str, str] = {}
        #: The client settings of Kafka that the parts of the run were given.
        self.kafka_of: dict[str, Mapping[str, Any]] = {}
        for name, fake in {
            "CheckpointFiles": lambda spark, checkpoint: files,
            "OffsetMirror": self._mirror,
            "Queries": self._queries,
            "SourceLoss": self._loss,
            "Topics": self._topics,
            "Watch": lambda query, progress, *_: SimpleNamespace(until_the_end=lambda: self.happens(progress)),
        }.items():
            monkeypatch.setattr(driver, name, fake)

    def _topics(self, kafka: Mapping[str, Any]) -> Topics:
        made = Topics(kafka)
        close = made.close
        made.close = lambda: (self.closed.append("topics"), close())[-1]  # type: ignore[method-assign]
        return made

    def _mirror(self, kafka: Mapping[str, Any], *_: Any) -> Any:
        self.kafka_of["mirror"] = kafka
        self.while_mirror_is_made()
        return SimpleNamespace(
            begin_at=lambda batch, end: self.mirrored.append((batch, end)), close=lambda: self.closed.append("mirror")
        )

    def _queries(self, spark: Any, config: StreamConfig, kafka: Mapping[str, Any], *given: Any) -> Any:
        self.kafka_of["queries"], self.continues_at = kafka, given[-1]

        def start(what: Any) -> Any:
            self.started.append(what)
            return SimpleNamespace(id=QUERY)

        return SimpleNamespace(
            start_over_loss=lambda loss, step: start(step),
            start_stream=lambda where, *, adopts_ledger: start((dict(where), adopts_ledger)),
        )

    def _loss(self, *_: Any) -> Any:
        def batches(*, partly_in_sink: bool) -> Iterator[LossBatch]:
            self.partly_in_sink.append(partly_in_sink)
            return iter(self.loss_batches)

        return SimpleNamespace(
            batches=batches,
            find=self.find_lost,
            refusal=lambda lost: DataLost(f"lost {lost}", "risk", "helps"),
        )

    def drive(self, **settings: Any) -> RunRecord:
        """Run the driver to its end; its record as others can read it."""
        config = StreamConfig(
            name="orders", checkpoint="c", source=("orders",), sink="orders-out", group="orders",
            kafka={"bootstrap.servers": "localhost:9092"}, **{"start": "earliest", **settings},
        )  # fmt: skip
        self.files.__dict__["written"] = []
        self.driver = Driver(a_spark(self.spark), config, lambda events: events)
        self.code, self.line = self.driver.run()
        return self.read(self.driver.record.run)

    def read(self, run: str) -> RunRecord:
        return RunRecord.from_json(self.files.read(path_of(run)) or "")

    def other(self, run: str, *states: str, **changes: Any) -> RunRecord:
        """The record of another run; by default of this process, which is alive."""
        record = RunRecord(run, "orders", **{"driver": this_driver(1), **changes})
        for state in states:
            record.enter(state)
        self.files.write(record.path, record.to_json())
        return record

    def committed(self, batch: int) -> None:
        """The checkpoint and the ledger hold this batch."""
        self.files.write("metadata", json.dumps({"id": QUERY}))
        for number in range(batch + 1):
            self.files.write(f"offsets/{number}", offsets(number))
            self.files.write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')
        record = held(
            batch, query_id=QUERY, digest=input_digest(offsets(batch)), topic_id=self.out.id,
            end={"orders": {"0": 10 * batch + 10}},
        )  # fmt: skip
        ledger = self.broker.topic(ledger_topic("orders"), cleanup_policy="compact")
        ledger.partitions[0].write(record.key, record.to_json())


def a_spark(properties: Mapping[str, str] | None = None) -> Any:
    """As much of a Spark session as the driver itself looks at."""
    known = dict(properties or {})
    conf = SimpleNamespace(getAll=lambda: list(known.items()))
    context = SimpleNamespace(applicationId="app-1", uiWebUrl="http://ui", version="4", getConf=lambda: conf)
    current = SimpleNamespace(pid=lambda: os.getpid())
    lang = SimpleNamespace(ProcessHandle=SimpleNamespace(current=lambda: current))
    return SimpleNamespace(
        sparkContext=context,
        conf=SimpleNamespace(get=known.get),
        _jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)),
    )
