"""Reading ledger and checkpoint and comparing them, with a Kafka in memory."""

from __future__ import annotations

import logging

import pytest

from ckpt_stream.errors import LedgerAhead, LedgerLost, LedgerUndecided, SinkRejected, UnsafeLedger
from ckpt_stream.kafka.ledger_comparison import compare_ledger, read_ledger_and_checkpoint
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.checkpoint.newest_batches import MAX_LOOKS
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held, sink_of
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit

LEDGER = "orders.ledger"


class World:
    """A checkpoint, and a ledger of one lane that holds all batches below ``begun``."""

    def __init__(self, broker: FakeBroker, files: MovingCheckpoint, held_batches: int = 3) -> None:
        self.broker, self.files = broker, files
        broker.topic("orders-out")
        self.lane = broker.topic(LEDGER, cleanup_policy="compact").partitions[0]
        for batch in range(held_batches):
            self.write(batch)
        self.topics = Topics({})

    def write(self, batch: int) -> LedgerRecord:
        record = held(batch, query_id=QUERY, digest=input_digest(offsets(batch)))
        self.lane.write(record.key, record.to_json())
        return record

    def compare(self) -> Reconciliation:
        return compare_ledger(self.files, self.topics, {}, sink_of(), adopt_ledger=False)


def at_rest(committed: int) -> MovingCheckpoint:
    return MovingCheckpoint([], begun=committed)


def test_a_stream_at_rest_is_resumed_after_its_newest_batch(broker: FakeBroker) -> None:
    assert World(broker, at_rest(3)).compare() == Reconciliation(Resume.CLEAN, 2)


def test_nothing_is_written_by_a_comparison(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    before = list(world.lane.log)
    world.compare()
    assert world.lane.log == before
    assert not broker.owners


def test_a_checkpoint_without_a_ledger_is_refused_with_the_batch_that_may_be_in_the_sink(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    del broker.topics[LEDGER]
    with pytest.raises(LedgerLost, match="batch 2"):
        world.compare()


def test_a_ledger_that_a_broker_does_not_know_for_a_moment_is_not_lost(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    broker.fail("describe_topics", kafka_error("UNKNOWN_TOPIC_OR_PART"))
    assert world.compare() == Reconciliation(Resume.CLEAN, 2)


def test_a_ledger_that_is_to_be_adopted_is_not_absent_because_a_broker_does_not_know_it_for_a_moment(
    broker: FakeBroker,
) -> None:
    world = World(broker, at_rest(0), held_batches=2)
    broker.fail("describe_topics", kafka_error("UNKNOWN_TOPIC_OR_PART"))
    found = compare_ledger(world.files, world.topics, {}, sink_of(), adopt_ledger=True)
    assert found.kind == Resume.ADOPTED


def test_an_empty_checkpoint_needs_no_ledger(broker: FakeBroker) -> None:
    world = World(broker, at_rest(0), held_batches=0)
    del broker.topics[LEDGER]
    assert world.compare() == Reconciliation(Resume.FRESH)


def test_a_sink_that_does_not_exist_is_refused(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    del broker.topics["orders-out"]
    with pytest.raises(SinkRejected, match="orders-out"):
        world.compare()


def test_an_unsafe_ledger_is_refused_before_it_is_read(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    broker.topics[LEDGER].settings["cleanup.policy"] = "delete"
    with pytest.raises(UnsafeLedger):
        world.compare()
    assert "poll" not in broker.names_of_calls()


def test_a_ledger_ahead_of_the_checkpoint_is_refused(broker: FakeBroker) -> None:
    with pytest.raises(LedgerAhead):
        World(broker, at_rest(3), held_batches=6).compare()


def test_a_record_that_is_missing_is_a_refusal_when_readers_see_everything(broker: FakeBroker) -> None:
    with pytest.raises(LedgerLost, match="batch 1"):
        World(broker, at_rest(3), held_batches=2).compare()


def test_a_record_that_is_missing_is_undecided_while_a_transaction_hides_a_part(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3), held_batches=2)
    world.lane.hidden_from = world.lane.high
    world.write(2)
    with pytest.raises(LedgerUndecided) as undecided:
        world.compare()
    assert undecided.value.restart_may_help


def test_a_record_whose_marker_arrives_while_the_comparison_waits_is_there(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(broker, at_rest(3), held_batches=2)
    world.lane.hidden_from = world.lane.high
    world.write(2)
    wait = Topics.wait_until_readable

    def the_marker_arrives(self: Topics, name: str) -> bool:
        world.lane.hidden_from = None
        return wait(self, name)

    monkeypatch.setattr(Topics, "wait_until_readable", the_marker_arrives)
    assert world.compare() == Reconciliation(Resume.CLEAN, 2)


def test_a_ledger_is_compared_with_the_checkpoint_of_the_same_moment(broker: FakeBroker) -> None:
    """A driver commits one more batch while the ledger is read."""
    world = World(broker, at_rest(3))

    def a_batch_is_committed() -> None:
        world.write(3)
        world.files.move(2)

    broker.fail("describe_topics", a_batch_is_committed)
    assert world.compare() == Reconciliation(Resume.CLEAN, 3)


def test_a_checkpoint_that_changes_at_every_look_is_inconclusive(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    seen = read_ledger_and_checkpoint(world.files, world.topics, {}, sink_of(), adopt_ledger=False)
    assert seen.conclusive
    broker.fail("get_watermark_offsets", *[lambda: world.files.move(1)] * (2 * MAX_LOOKS))
    again = seen.read_again(world.files, world.topics, {}, wait_until_readable=False)
    assert not again.conclusive


def test_the_last_record_of_a_lane_that_the_topic_does_not_have_is_none(broker: FakeBroker) -> None:
    world = World(broker, at_rest(3))
    seen = read_ledger_and_checkpoint(world.files, world.topics, {}, sink_of(), adopt_ledger=False)
    assert seen.last(0) == held(2, query_id=QUERY, digest=input_digest(offsets(2)))
    assert seen.last(1) is None


# Settings that this user may not see


def test_a_driver_that_may_not_see_the_settings_says_so_and_names_the_right(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(broker, at_rest(3))
    broker.fail("describe_configs", kafka_error("TOPIC_AUTHORIZATION_FAILED"))
    with caplog.at_level(logging.WARNING):
        assert world.compare() == Reconciliation(Resume.CLEAN, 2)
    for part in (LEDGER, "kafka-acls.sh", "DescribeConfigs"):
        assert part in caplog.text


def test_a_driver_that_sees_all_settings_logs_nothing(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    World(broker, at_rest(3)).compare()
    assert caplog.text == ""
