"""The start of a run on a Kafka in memory: which lanes it fences, what it anchors, and the adoption that it notes."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver.start_of_run import Start, reconcile_at_start
from ckpt_stream.errors import Fenced
from ckpt_stream.kafka.lane_control import read_ledger_ends
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.protocol.checkpoint.checkpoint_log import initial_offsets, input_digest
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, ledger_topic
from ckpt_stream.protocol.run_files.adoption import Adoption, note_adoption, read_adoption
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held, sink_of
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

SINK, LEDGER = "orders-out", ledger_topic("orders")
FIRST = {"orders": {"0": 5}}


class World:
    """The checkpoint and the ledger that a run finds."""

    def __init__(self, broker: FakeBroker, files: FsspecFiles) -> None:
        self.broker, self.files = broker, files
        broker.topic(SINK)
        files.write("sources/0/0", initial_offsets(FIRST))

    def checkpoint(self, *, begun: int, committed: int) -> None:
        """A checkpoint with so many batches."""
        stands = MovingCheckpoint([], begun=committed)
        stands.move(begun - committed)
        for name, text in stands.texts.items():
            self.files.write(name, text)

    def ledger(self, partitions: int, *records: LedgerRecord) -> None:
        topic = self.broker.topic(LEDGER, partitions, cleanup_policy="compact")
        for record in records:
            topic.partitions[record.lane].write(record.key, record.to_json())

    def written(self, batch: int, lane: int = 0, lanes: int = 1, **changes: Any) -> LedgerRecord:
        about: dict[str, Any] = {
            "query_id": QUERY, "digest": input_digest(offsets(batch)), "topic_id": self.broker.topics[SINK].id,
            "end": {"orders": {"0": 10 * batch + 10}},
        }  # fmt: skip
        return held(batch, lane, lanes, **{**about, **changes})

    def begin(self, lanes: int = 1, *, adopt_ledger: bool = False) -> Start:
        sink = sink_of(lanes, topic_id=self.broker.topics[SINK].id)
        return reconcile_at_start(
            self.files, Topics({}), {}, sink, run_id="run-2", application="2.0", timeout_ms=60_000,  # type: ignore[arg-type]
            adopt_ledger=adopt_ledger,
        )  # fmt: skip

    def fenced(self) -> list[str]:
        return sorted(self.broker.owners)

    def anchors(self) -> list[LedgerRecord]:
        last = read_ledger_ends({}, LEDGER, len(self.broker.topics[LEDGER].partitions))
        return [record for record in last if record is not None and record.kind == ANCHOR]


@pytest.fixture
def world(broker: FakeBroker, files: FsspecFiles) -> World:
    return World(broker, files)


# The fence


def test_a_former_driver_of_a_lane_that_the_stream_no_longer_has_is_fenced(world: World) -> None:
    """Since batch 1 the stream has one lane; batch 0 was divided into three."""
    world.checkpoint(begun=3, committed=3)
    world.ledger(3, world.written(2), world.written(0, 1, 3), world.written(0, 2, 3))
    former = Transaction({}, "orders-2", 60_000, SINK)
    former.begin()
    former.produce(SINK, value=b"late")
    former.flush()
    assert world.begin(lanes=1).reconciliation.line == "clean resume after batch 2"
    with pytest.raises(Fenced):
        former.commit("commit", {})
    assert world.broker.values(SINK) == []
    assert world.fenced() == ["orders-0", "orders-1", "orders-2"]


def test_lanes_that_no_ledger_knows_yet_are_fenced_too(world: World) -> None:
    world.begin(lanes=2)
    assert world.fenced() == ["orders-0", "orders-1"]
    assert len(world.broker.topics[LEDGER].partitions) == 2


# The unfinished batch


def test_a_lane_that_the_stream_no_longer_has_is_none_of_the_unfinished_batchs_lanes(world: World) -> None:
    world.checkpoint(begun=3, committed=2)
    world.ledger(2, world.written(2, 0, 1), world.written(2, 1, 2))
    unfinished = world.begin(lanes=1).unfinished
    assert unfinished is not None
    assert (unfinished.batch, unfinished.lanes_in_sink, unfinished.is_one_attempt(1)) == (2, 1, True)


# Anchors


def test_an_anchor_before_the_first_batch_ends_where_that_batch_begins(world: World) -> None:
    world.checkpoint(begun=1, committed=0)
    world.ledger(2)
    start = world.begin(lanes=2)
    assert start.unfinished is not None
    assert [(a.lane, a.lanes, a.batch, a.start, a.end) for a in world.anchors()] == [
        (0, 2, -1, FIRST, FIRST), (1, 2, -1, FIRST, FIRST)
    ]  # fmt: skip


@pytest.mark.parametrize("batch", [0, 2])
def test_an_anchor_of_a_change_of_lanes_ends_where_the_batch_that_it_repeats_has_ended(
    world: World, batch: int
) -> None:
    world.checkpoint(begun=batch + 1, committed=batch + 1)
    world.ledger(1, world.written(batch))
    world.begin(lanes=2)
    end = {"orders": {"0": 10 * batch + 10}}
    assert [(a.lane, a.lanes, a.batch, a.start, a.end, a.query_id) for a in world.anchors()] == [
        (0, 2, batch, end, end, QUERY), (1, 2, batch, end, end, QUERY)
    ]  # fmt: skip


def test_a_clean_resume_writes_no_anchor(world: World) -> None:
    world.checkpoint(begun=3, committed=3)
    world.ledger(1, world.written(2))
    assert world.begin().end == {"orders": {"0": 30}}
    assert world.anchors() == []
    assert "produce" not in world.broker.names_of_calls()


# The ledger of an earlier query


def test_an_adopted_ledger_is_noted_beside_the_checkpoint_and_the_run_continues_at_its_end(world: World) -> None:
    world.ledger(1, world.written(7, query_id="earlier"))
    start = world.begin(adopt_ledger=True)
    assert start.adopted == read_adoption(world.files) == Adoption("earlier", 7)
    assert start.end == {"orders": {"0": 80}}


def test_the_adoption_of_a_query_from_before_the_ledger_was_reset_is_forgotten(world: World) -> None:
    note_adoption(world.files, Adoption("earlier", 7))
    assert world.begin().adopted is None
    assert read_adoption(world.files) is None


def test_an_adoption_stays_noted_while_its_query_goes_on(world: World) -> None:
    note_adoption(world.files, Adoption("earlier", 7))
    world.checkpoint(begun=1, committed=0)
    world.ledger(1, world.written(7, query_id="earlier"))
    start = world.begin()
    assert start.adopted == read_adoption(world.files) == Adoption("earlier", 7)
    assert start.reconciliation.to_finish == (0,)
