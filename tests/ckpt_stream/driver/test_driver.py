"""One run of the driver on a Kafka in memory, with queries of the test's own: its states, its refusals, what it remembers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ckpt_stream.driver.new_record import new_record
from ckpt_stream.driver.source_loss import LossBatch
from ckpt_stream.errors import SinkError
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from ckpt_stream.protocol.run_files.record_files import POISON, STOP, list_from_json
from ckpt_stream.protocol.run_files.run_record import (
    FAILED,
    FINISHED,
    RUNNING,
    STARTING,
    STOPPED,
    Failure,
)  # fmt: skip
from ckpt_stream.protocol.run_files.stop_requests import stop_request
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.spark.unsafe_settings import IGNORE_LEDGER
from tests.ckpt_stream.driver.driver_world import EARLIER, POISON_TEXT, NotedWrites, World, a_spark
from tests.ckpt_stream.moving import QUERY, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit


@pytest.fixture
def world(broker: FakeBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(broker, NotedWrites(str(tmp_path)), monkeypatch)


def fails(error: BaseException) -> Callable[..., Any]:
    def happens(*_: Any) -> Any:
        raise error

    return happens


# States


def test_a_run_that_ends_well_enters_its_states_in_order(world: World) -> None:
    record = world.drive()
    assert [entry["state"] for entry in record.history] == [STARTING, RUNNING, FINISHED]
    assert (world.code, world.line.split()[-1]) == (0, FINISHED)
    assert world.started == [({"startingOffsets": "earliest"}, False)]
    assert record.query_id == QUERY


def test_the_record_is_written_before_kafka_is_asked_for_anything(world: World) -> None:
    found: list[Any] = []
    world.broker.fail("describe_topics", lambda: found.append(list(world.files.__dict__["written"])))
    world.drive()
    assert found[0][0] == STARTING


def test_the_heartbeat_begins_before_kafka_is_asked_for_anything(world: World) -> None:
    """To fence the lanes, or to read a large ledger, may take minutes."""
    found: list[bool] = []
    world.broker.fail("describe_topics", lambda: found.append(world.driver.heartbeat._thread.is_alive()))
    world.drive()
    assert found == [True]


def test_the_former_writers_are_fenced_with_the_streams_transaction_timeout(world: World) -> None:
    world.drive(transaction_timeout=90, lanes=2)
    fences = [c.settings for c in world.broker.clients if "transactional.id" in c.settings]
    assert [settings["transaction.timeout.ms"] for settings in fences] == [90_000] * 2


def test_a_failure_is_in_the_record_with_its_batch(world: World) -> None:
    def happens(progress: Any) -> str:
        progress.current = (4, 0.0)
        raise RuntimeError("QueryFailed")

    world.happens = happens
    record = world.drive()
    assert [entry["state"] for entry in record.history] == [STARTING, RUNNING, FAILED]
    assert record.failure == Failure("RuntimeError", "QueryFailed", 4, None, True)
    assert world.code == 1
    assert "RuntimeError" in world.line


def test_clients_are_closed_however_the_run_ends(world: World) -> None:
    world.happens = fails(RuntimeError("x"))
    world.drive()
    assert world.closed == ["mirror", "topics"]
    assert not world.driver.heartbeat._thread.is_alive()


def test_the_secrets_of_kafka_are_not_in_the_record(world: World) -> None:
    config = {"bootstrap.servers": "localhost:9092", "sasl.password": "HUSH"}
    assert (
        "HUSH"
        not in new_record(
            a_spark(), StreamConfig(name="o", checkpoint="c", source=("a",), sink="b", kafka=config)
        ).to_json()
    )


def test_an_accepted_loss_is_not_in_the_record_from_which_the_next_run_may_be_started(world: World) -> None:
    """A user accepts a loss for one run."""
    record = world.drive(accepted_loss=[{"topic": "orders", "partition": 0, "start": 3, "end": 5}])
    assert record.failure is None
    assert "accepted_loss" not in record.settings


def test_every_client_of_the_run_gets_the_secrets_that_were_passed_apart_from_the_configuration(world: World) -> None:
    world.spark[SECRETS_PROPERTY] = '{"sasl.password": "HUSH"}'
    world.committed(2)
    assert world.drive().failure is None
    settings = [*(client.settings for client in world.broker.clients), *world.kafka_of.values()]
    assert len(settings) > 3
    assert {each.get("sasl.password") for each in settings} == {"HUSH"}
    assert "HUSH" not in (world.files.read(world.driver.record.path) or "")


@pytest.mark.parametrize("where", ["stream", "spark", "environment"])
def test_a_run_with_a_setting_that_would_break_exactly_once_fails_before_it_asks_kafka(
    world: World, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "spark":
        world.spark["spark.speculation"] = "true"
    if where == "environment":
        monkeypatch.setenv(IGNORE_LEDGER, "1")
    record = world.drive(source_options={"failOnDataLoss": "false"} if where == "stream" else {})
    assert (record.state, record.failure.error if record.failure else None) == (FAILED, "UnsafeSetting")
    assert (world.started, world.broker.calls) == ([], [])


# Poison records


def test_a_poison_record_is_remembered_before_the_run_is_failed(world: World) -> None:
    world.happens = fails(RuntimeError(POISON_TEXT))
    record = world.drive()
    written = world.files.__dict__["written"]
    assert written.index(POISON) < written.index(FAILED)
    (poison,) = list_from_json(world.files.read(POISON), "poison")
    assert (poison["offset"], poison["run"]) == (29, record.run)


def test_a_record_that_fails_every_run_is_not_remembered(world: World) -> None:
    world.happens = fails(RuntimeError(POISON_TEXT.replace("true", "false")))
    assert world.drive().failure == Failure(
        "PoisonRecord",
        "the word ERROR at orders-0 offset 29",
        None,
        {"topic": "orders", "partition": 0, "offset": 29, "once": False, "reason": "the word ERROR"},
        False,
    )
    assert world.files.read(POISON) is None


# Stop requests


def test_a_stop_request_that_is_there_at_the_start_ends_the_run_before_its_first_query(world: World) -> None:
    world.files.write(STOP, stop_request("ann", "maintenance", token="mine"))
    record = world.drive(token="mine")
    assert [entry["state"] for entry in record.history] == [STARTING, STOPPED]
    assert (record.stopping, world.started, world.broker.calls) == (True, [], [])


def test_a_stop_request_that_an_earlier_run_died_before_obeying_ends_its_restart(world: World) -> None:
    world.other(EARLIER, STARTING, RUNNING, FAILED)
    world.files.write(STOP, stop_request("ann", "maintenance", EARLIER, "earlier"))
    record = world.drive(token="mine")
    assert record.state == STOPPED
    assert json.loads(world.files.read(STOP) or "")["run"] == record.run


def test_a_run_that_a_user_started_without_a_token_deletes_the_request_of_an_earlier_run(world: World) -> None:
    world.other(EARLIER, STARTING, RUNNING, FAILED)
    request = json.loads(stop_request("ann", "maintenance", EARLIER, "earlier"))
    world.files.write(STOP, json.dumps({**request, "time": "2025-01-01T00:00:00.000+00:00"}))
    assert world.drive().state == FINISHED
    assert world.files.read(STOP) is None


# Where the run continues


def test_the_offset_mirror_begins_at_the_checkpoints_last_committed_batch(world: World) -> None:
    world.committed(2)
    record = world.drive()
    assert world.mirrored == [(2, {"orders": {"0": 30}})]
    assert record.reconciliation == Reconciliation(Resume.CLEAN, 2).line
    assert world.started == [({}, False)], "the checkpoint decides, and not the start options"
    assert world.continues_at == {"orders": {"0": 30}}, "poison records before it are not read again"


def test_a_run_that_fails_before_its_query_names_the_query_and_the_reconciliation_all_the_same(world: World) -> None:
    world.committed(2)
    world.while_mirror_is_made = fails(RuntimeError("x"))
    record = world.drive()
    assert (record.state, record.query_id) == (FAILED, QUERY)
    assert record.reconciliation == Reconciliation(Resume.CLEAN, 2).line


def test_a_stream_whose_first_batch_is_in_doubt_repeats_it_and_does_not_start_elsewhere(world: World) -> None:
    world.files.write("metadata", json.dumps({"id": QUERY}))
    world.files.write("offsets/0", offsets(0))
    world.broker.topic(ledger_topic("orders"), cleanup_policy="compact")
    assert world.drive(start="latest").failure is None
    assert (world.started, world.mirrored) == ([({}, False)], [])


def test_a_new_stream_has_nothing_to_mirror(world: World) -> None:
    world.drive()
    assert world.mirrored == []


def test_a_query_that_takes_a_ledger_over_has_committed_nothing_to_mirror(world: World) -> None:
    ledger = world.broker.topic(ledger_topic("orders"), cleanup_policy="compact")
    last = held(7, query_id="earlier", topic_id=world.out.id, end={"orders": {"0": 80}})
    ledger.partitions[0].write(last.key, last.to_json())
    assert world.drive(start="ledger").failure is None
    assert (world.driver.committed, world.mirrored) == ({"orders": {"0": 80}}, [])


def test_a_stream_whose_ledger_is_gone_is_refused_before_its_first_query(world: World) -> None:
    world.committed(2)
    del world.broker.topics[ledger_topic("orders")]
    record = world.drive()
    assert (record.failure.error if record.failure else None) == "LedgerLost"
    assert world.started == []


def test_at_least_once_asks_no_ledger(world: World) -> None:
    world.drive(guarantee="at_least_once")
    assert ledger_topic("orders") not in world.broker.topics
    assert world.broker.owners == {}, "no lane was fenced"


# Lost records


def test_batches_over_an_accepted_loss_run_before_the_streams_own_query(world: World) -> None:
    world.loss_batches = [LossBatch(3, as_planned=True), LossBatch(4, as_planned=False)]
    record = world.drive()
    assert world.started[:2] == world.loss_batches
    assert len(world.started) == 3
    assert [entry["state"] for entry in record.history] == [STARTING, RUNNING, FINISHED]


def test_a_stop_during_a_batch_over_a_loss_ends_the_run(world: World) -> None:
    def stopped(progress: Any) -> str:
        progress.stopping = True
        return STOPPED

    world.loss_batches, world.happens = [LossBatch(3, as_planned=True)], stopped
    assert world.drive().state == STOPPED
    assert len(world.started) == 1


def test_sparks_error_about_lost_records_becomes_the_refusal_that_names_them(world: World) -> None:
    world.happens, world.find_lost = fails(RuntimeError("Some data may have been lost")), lambda: ("orders-0",)
    assert (record := world.drive()).failure is not None
    assert (record.failure.error, record.failure.restart_may_help) == ("DataLost", False)


def test_sparks_error_stays_if_nothing_is_found_to_be_lost(world: World) -> None:
    world.happens = fails(RuntimeError("Some data may have been lost"))
    assert (record := world.drive()).failure is not None
    assert record.failure.error == "RuntimeError"


def test_sparks_error_stays_if_it_cannot_be_found_out_what_is_lost(world: World) -> None:
    world.happens, world.find_lost = fails(RuntimeError("Some data may have been lost")), fails(SinkError("no answer"))
    assert (record := world.drive()).failure is not None
    assert record.failure.error == "RuntimeError"
