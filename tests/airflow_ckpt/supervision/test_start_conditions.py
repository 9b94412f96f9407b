"""What a start depends on in Kafka, as preflight reads it: the topics that it writes to, and its ledger."""

from __future__ import annotations

import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.kafka import shared_client
from airflow_ckpt.streams.preflight import check
from airflow_ckpt.supervision.observing import look_before_start
from airflow_ckpt.supervision.start_conditions import read_start_conditions
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.checkpoint.checkpoint_log import initial_offsets, input_digest
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from tests.airflow_ckpt.supervision.samples import a_stream
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

HOUR_MS = 3_600_000


class World:
    """A stream from `orders_in` to `orders_out`, which was never started."""

    def __init__(self, broker: FakeBroker, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        broker.topic("orders_in", retention_ms=str(HOUR_MS))
        broker.topic("orders_out")
        broker.broker_settings["transaction.max.timeout.ms"] = "900000"

    def found(self, **settings: Any) -> list[tuple[str, str]]:
        """The findings of preflight: each kind, and what was found."""
        stream = a_stream(**settings)
        access = StreamAccess(stream, FsspecFiles(str(self.folder)), {"bootstrap.servers": "broker:1"}, None)
        return [(f.kind, f.what) for f in check(stream, read_start_conditions(access, look_before_start(access)))]

    def kinds(self, **settings: Any) -> list[str]:
        return [kind for kind, _ in self.found(**settings)]

    def committed(self, batches: int) -> None:
        for name, text in MovingCheckpoint([], begun=batches).texts.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)
        # The source of such a checkpoint; nothing in it is unread.
        self.broker.topic("orders").partitions[0].mark(10 * batches)

    def ledger(self, batches: int, query: str = QUERY) -> None:
        lane = self.broker.topic(ledger_topic("orders"), cleanup_policy="compact").partitions[0]
        sink = self.broker.topics["orders_out"].id
        for n in range(batches):
            record = held(n, query_id=query, digest=input_digest(offsets(n)), topic="orders_out", topic_id=sink)
            lane.write(record.key, record.to_json())


@pytest.fixture
def kafka(broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(shared_client, "_clients", OrderedDict())
    return World(broker, tmp_path)


def test_nothing_prevents_a_first_start(kafka: World) -> None:
    assert kafka.found() == []


@pytest.mark.parametrize("topic", ["orders_in", "orders_out"])
def test_a_topic_of_the_stream_must_exist(kafka: World, topic: str) -> None:
    del kafka.broker.topics[topic]
    ((kind, what),) = kafka.found()
    assert kind == "topic_missing"
    assert topic in what


def test_the_dead_letter_topic_must_exist_if_there_is_to_be_one(kafka: World) -> None:
    ((kind, what),) = kafka.found(dead_letter_topic="orders_dead")
    assert kind == "topic_missing"
    assert "orders_dead" in what
    kafka.broker.topic("orders_dead")
    assert kafka.found(dead_letter_topic="orders_dead") == []


def test_a_checkpoint_without_its_ledger_is_refused(kafka: World) -> None:
    kafka.committed(3)
    ((kind, what),) = kafka.found(source="orders")
    assert kind == "ledger"
    assert what.startswith("LedgerLost")


def test_an_at_least_once_stream_has_no_ledger_and_is_asked_for_none(kafka: World) -> None:
    kafka.committed(3)
    assert kafka.found(source="orders", guarantee="at_least_once") == []
    assert ("describe_topics", ledger_topic("orders")) not in kafka.broker.calls


def test_a_ledger_that_fits_the_checkpoint_is_no_finding(kafka: World) -> None:
    kafka.committed(3)
    kafka.ledger(3)
    assert kafka.found(source="orders") == []


def test_the_ledger_of_another_query_is_refused_unless_the_start_takes_it_over(kafka: World) -> None:
    kafka.ledger(3, query="another")
    ((kind, what),) = kafka.found()
    assert kind == "ledger"
    assert what.startswith("ForeignLedger")
    assert kafka.found(start="ledger") == []


def test_a_start_from_a_ledger_that_holds_nothing_is_refused(kafka: World) -> None:
    ((kind, what),) = kafka.found(start="ledger")
    assert kind == "ledger"
    assert what.startswith("LedgerLost")


def test_a_transaction_longer_than_the_brokers_allow_is_found(kafka: World) -> None:
    assert kafka.kinds(transaction_timeout=901) == ["transaction_timeout"]
    assert kafka.kinds(transaction_timeout=900) == []


def test_a_checkpoint_that_has_lost_its_metadata_is_found_before_a_start(kafka: World) -> None:
    """Spark would begin a new query, which knows none of the batches."""
    kafka.committed(3)
    kafka.ledger(3)
    (kafka.folder / "metadata").unlink()
    findings = kafka.found(source="orders")
    assert [what for kind, what in findings if kind == "checkpoint_unreadable" and what.startswith("metadata ")]


def test_what_a_first_batch_in_doubt_has_lost_is_found_before_a_start(kafka: World) -> None:
    """Nothing is committed yet: where the batch begins is in the source's own file."""
    kafka.committed(1)
    (kafka.folder / "commits/0").unlink()
    (kafka.folder / "sources/0").mkdir(parents=True)
    (kafka.folder / "sources/0/0").write_text(initial_offsets({"orders": {"0": 4}}))
    kafka.broker.partition("orders").low = 4
    assert kafka.found(source="orders", guarantee="at_least_once") == []
    kafka.broker.partition("orders").low = 7
    ((kind, what),) = kafka.found(source="orders", guarantee="at_least_once")
    assert kind == "data_lost"
    assert "orders-0" in what


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        ({"retention.ms": str(HOUR_MS)}, ["data_soon_lost"]),
        ({"retention.ms": str(10 * HOUR_MS)}, []),
        ({"retention.ms": "-1"}, []),
        ({"retention.ms": str(HOUR_MS), "cleanup.policy": "compact,delete"}, ["data_soon_lost"]),
        ({"retention.ms": str(HOUR_MS), "cleanup.policy": "compact"}, []),
    ],
)
def test_input_that_retention_is_about_to_delete_is_found(
    kafka: World, settings: dict[str, str], kinds: list[str]
) -> None:
    """The first unread record is 55 minutes old."""
    kafka.committed(3)
    kafka.ledger(3)
    kafka.broker.topics["orders"].settings.update(settings)
    kafka.broker.partition("orders").write(None, b"v", time.time() - 55 * 60)
    assert kafka.kinds(source="orders") == kinds
