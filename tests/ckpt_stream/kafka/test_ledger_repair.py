"""Repairs of a ledger that a user orders: rebuild, accept a replay that differs, reset."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ckpt_stream.errors import BatchInDoubt, DriverAlive, LedgerAhead, LedgerUndecided, Refused, SinkRejected
from ckpt_stream.kafka.lane_control import read_ledger_ends
from ckpt_stream.kafka.ledger_repair import DONE, REDO, Rebuilt, accept_differing_replay, rebuild, reset
from ckpt_stream.machine.process_identity import this_driver
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.run_files.record_files import ACCEPTED, REPLAYS
from ckpt_stream.protocol.run_files.run_record import FAILED, RUNNING, STARTING, RunRecord
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit

LEDGER = "orders.ledger"


class Files(MovingCheckpoint):
    def write(self, name: str, text: str) -> None:
        self.texts[name] = text


class World:
    """A checkpoint, and a ledger of two lanes; ``in_doubt`` is a batch that was planned and not committed."""

    def __init__(self, broker: FakeBroker, *ledger: LedgerRecord | None, in_doubt: int) -> None:
        self.broker = broker
        self.files = Files([], begun=in_doubt)
        self.files.move(1)
        self.topic_id = broker.topic("orders-out").id
        broker.topic(LEDGER, 2)
        for record in ledger:
            if record is not None:
                self.write(record)

    def write(self, record: LedgerRecord) -> None:
        self.broker.partition(LEDGER, record.lane).write(record.key, record.to_json())

    def rebuild(self, in_doubt: str | None = DONE, lanes: int = 2) -> Rebuilt:
        return rebuild(self.files, {}, sink_id="orders", sink="orders-out", lanes=lanes, in_doubt=in_doubt)

    def last(self) -> list[tuple[int, str, str] | None]:
        """Batch, kind and input of each lane's last record."""
        found = read_ledger_ends({}, LEDGER, len(self.broker.topics[LEDGER].partitions))
        return [r and (r.batch, r.kind, r.digest) for r in found]


def of_batch(batch: int, lane: int, **changes: Any) -> LedgerRecord:
    return held(
        batch, lane, 2, query_id=QUERY, digest=input_digest(offsets(batch)), topic_id="orders-out-id-1", **changes
    )


def anchors_at(batch: int, lanes: int = 2) -> list[tuple[int, str, str] | None]:
    return [(batch, ANCHOR, input_digest(offsets(batch)))] * lanes


# Rebuild


def test_a_lost_ledger_is_anchored_at_the_newest_batch_of_the_checkpoint(broker: FakeBroker) -> None:
    world = World(broker, in_doubt=3)
    world.files.move(1)  # batch 3 is committed
    del broker.topics[LEDGER]
    assert world.rebuild(in_doubt=None) == Rebuilt(LEDGER, 3, 2)
    assert world.last() == anchors_at(3)


@pytest.mark.parametrize(("decision", "batch"), [(DONE, 3), (REDO, 2)])
def test_a_user_decides_about_the_batch_in_doubt(broker: FakeBroker, decision: str, batch: int) -> None:
    world = World(broker, in_doubt=3)
    assert world.rebuild(decision).batch == batch
    assert world.last() == anchors_at(batch)


def test_without_a_decision_a_batch_in_doubt_is_refused_and_nothing_is_written(broker: FakeBroker) -> None:
    world = World(broker, of_batch(2, 0), of_batch(2, 1), in_doubt=3)
    before = world.last()
    with pytest.raises(BatchInDoubt, match="Batch 3") as refused:
        world.rebuild(None)
    assert "--in-doubt" in refused.value.helps
    assert (world.last(), broker.owners) == (before, {})


def test_a_checkpoint_without_a_batch_has_nothing_to_anchor_at(broker: FakeBroker) -> None:
    world = World(broker, in_doubt=0)
    world.files = Files([])
    with pytest.raises(Refused, match="ledger reset orders"):
        world.rebuild()


def test_batch_0_that_is_to_be_written_again_leaves_an_empty_ledger(broker: FakeBroker) -> None:
    world = World(broker, in_doubt=0)
    assert world.rebuild(REDO).batch == -1
    assert world.last() == [None, None]


def test_batch_0_is_not_written_again_beside_a_ledger_of_another_history(broker: FakeBroker) -> None:
    world = World(broker, held(7, 0, 2, query_id="another"), in_doubt=0)
    with pytest.raises(BatchInDoubt, match="batch 7"):
        world.rebuild(REDO)


@pytest.mark.parametrize("batch", [0, 3])
def test_a_rebuild_that_was_interrupted_is_finished_by_the_same_command(broker: FakeBroker, batch: int) -> None:
    first = of_batch(batch - 1, 0) if batch else None
    world = World(broker, first, of_batch(batch, 1, kind=ANCHOR), in_doubt=batch)
    world.rebuild()
    assert world.last() == anchors_at(batch)


def test_a_lane_of_the_batch_in_doubt_that_the_ledger_has_in_the_sink_is_not_anchored(broker: FakeBroker) -> None:
    world = World(broker, of_batch(2, 0), of_batch(3, 1), in_doubt=3)
    with pytest.raises(BatchInDoubt, match="lane 1"):
        world.rebuild()


def test_a_ledger_that_a_broker_does_not_know_for_a_moment_is_looked_into_before_a_rebuild(broker: FakeBroker) -> None:
    """Otherwise the batch that is in the sink would be anchored away, and written again."""
    world = World(broker, of_batch(3, 0), of_batch(3, 1), in_doubt=3)
    broker.fail("describe_topics", lambda: None, kafka_error("UNKNOWN_TOPIC_OR_PART"))
    with pytest.raises(BatchInDoubt, match="lane 0"):
        world.rebuild(REDO)


@pytest.mark.parametrize("other", [{"query_id": "earlier"}, {"topic_id": "of-a-sink-that-was-deleted"}])
def test_a_batch_of_the_same_number_in_another_history_does_not_count_as_in_the_sink(
    broker: FakeBroker, other: dict[str, str]
) -> None:
    about = {"query_id": QUERY, "topic_id": "orders-out-id-1", **other}
    world = World(broker, of_batch(2, 0), held(3, 1, 2, **about), in_doubt=3)  # type: ignore[arg-type]
    world.rebuild(REDO)
    assert world.last() == anchors_at(2)


@pytest.mark.parametrize("ahead", [4, 7])
def test_a_ledger_ahead_of_the_checkpoint_is_not_anchored_at_the_older_batch(broker: FakeBroker, ahead: int) -> None:
    world = World(broker, of_batch(3, 0), of_batch(ahead, 1), in_doubt=3)
    with pytest.raises(LedgerAhead, match=f"batch {ahead}"):
        world.rebuild()


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_a_ledger_is_not_repaired_while_a_driver_of_the_checkpoint_is_alive(broker: FakeBroker, state: str) -> None:
    """Its fence would end a stream that writes."""
    world = World(broker, of_batch(2, 0), of_batch(3, 1), in_doubt=3)
    driver = RunRecord("20260101T000000.000000-x", "orders", state=state, driver=this_driver(1))
    world.files.write(driver.path, driver.to_json())
    with pytest.raises(DriverAlive):
        world.rebuild()
    with pytest.raises(DriverAlive):
        accept_differing_replay(world.files, {}, "orders", by="ann")
    assert (broker.owners, ACCEPTED in world.files.texts) == ({}, False)


def test_a_run_that_has_ended_does_not_keep_a_ledger_from_being_repaired(broker: FakeBroker) -> None:
    world = World(broker, in_doubt=3)
    driver = RunRecord("20260101T000000.000000-x", "orders", state=FAILED, driver=this_driver(1))
    world.files.write(driver.path, driver.to_json())
    assert world.rebuild() == Rebuilt(LEDGER, 3, 2)


@pytest.mark.parametrize(("batch", "decision"), [(3, DONE), (3, REDO), (0, REDO)])
def test_a_ledger_that_hides_a_part_is_not_rebuilt(broker: FakeBroker, batch: int, decision: str) -> None:
    before = [of_batch(batch - 1, lane) for lane in range(2)] if batch else []
    world = World(broker, *before, in_doubt=batch)
    lane = broker.partition(LEDGER, 1)
    lane.hidden_from = lane.high
    world.write(of_batch(batch, 1))
    seen = world.last()
    with pytest.raises(LedgerUndecided):
        world.rebuild(decision)
    assert world.last() == seen


def test_a_former_driver_is_fenced_before_its_ledger_is_read(broker: FakeBroker) -> None:
    world = World(broker, in_doubt=3)
    world.rebuild()
    calls = broker.names_of_calls()
    assert calls.index("init_transactions") < calls.index("get_watermark_offsets")


def test_lanes_that_the_stream_no_longer_has_are_anchored_and_lane_0_last(broker: FakeBroker) -> None:
    world = World(broker, of_batch(2, 0), of_batch(2, 1), in_doubt=3)
    world.rebuild(lanes=1)
    assert world.last() == anchors_at(3)
    assert [about for name, about in broker.calls if name == "commit_transaction"] == ["orders-1", "orders-0"]


# Accept a replay that differs


def test_an_accepted_replay_is_noted_for_the_driver_and_for_the_verdict(broker: FakeBroker) -> None:
    world = World(broker, of_batch(2, 0), of_batch(3, 1), in_doubt=3)
    done = accept_differing_replay(world.files, {}, "orders", by="ann")
    assert (done.batch, done.lanes_there, done.lanes_missing) == (3, (1,), (0,))
    accepted = json.loads(world.files.texts[ACCEPTED])
    assert (accepted["query_id"], accepted["batch"], accepted["by"]) == (QUERY, 3, "ann")
    assert '"accepted": true' in json.dumps(json.loads(world.files.texts[REPLAYS]))


@pytest.mark.parametrize("last", [of_batch(2, 1), held(3, 1, 2, query_id="earlier")])
def test_without_a_lane_in_the_sink_there_is_no_replay_to_accept(broker: FakeBroker, last: LedgerRecord) -> None:
    world = World(broker, of_batch(2, 0), last, in_doubt=3)
    with pytest.raises(Refused):
        accept_differing_replay(world.files, {}, "orders", by="ann")
    assert ACCEPTED not in world.files.texts


# Reset


def test_a_reset_deletes_the_ledger_and_nothing_else(broker: FakeBroker) -> None:
    World(broker, of_batch(2, 0), in_doubt=3)
    assert reset({}, "orders") == LEDGER
    assert list(broker.topics) == ["orders-out"]


def test_a_ledger_that_is_not_there_cannot_be_reset(broker: FakeBroker) -> None:
    with pytest.raises(SinkRejected, match=r"orders\.ledger"):
        reset({}, "orders")
