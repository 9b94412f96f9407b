"""What bounds a recomputation, by a checkpoint and a Kafka in memory that go on while they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.errors import CannotTell
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.verify.recompute_range import Bounds, find_bounds, refuse_deleted
from tests.ckpt_stream.moving import QUERY, offsets
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker, FakePartition

pytestmark = pytest.mark.unit

SINK, LEDGER = "orders-out", ledger_topic("orders")


class World:
    """A stream whose batches have ten records each."""

    def __init__(self, broker: FakeBroker, files: FsspecFiles) -> None:
        self.broker, self.files = broker, files
        self.sink, self.ledger = broker.topic(SINK).partitions[0], broker.topic(LEDGER).partitions[0]
        files.write("metadata", f'{{"id": "{QUERY}"}}')

    def write(self, batch: int, *, query: str = QUERY, committed: bool = True, in_ledger: bool = True) -> None:
        """A batch in the sink, in the ledger and, if it is of this checkpoint's query, in the checkpoint."""
        if query == QUERY:
            self.files.write(f"offsets/{batch}", offsets(batch))
        if in_ledger:
            record = held(batch, query_id=query, sink_start={SINK: {"0": self.sink.high}})
            self.ledger.write(record.key, record.to_json())
        for _ in range(10):
            self.sink.write(b"k", b"v")
        if query == QUERY and committed:
            self.files.write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def when_the_sink_is_looked_at(self, then: Callable[[], None]) -> None:
        """Let something happen before Kafka answers the question about the sink."""

        def look() -> None:
            if self.broker.calls[-1] == ("list_topics", SINK):
                then()
            else:
                self.broker.fail("list_topics", look)

        self.broker.fail("list_topics", look)

    def bounds(self, until: int | None = None, **settings: Any) -> Bounds:
        config = StreamConfig(
            name="orders", checkpoint="c", source=("orders",), sink=SINK, kafka={"bootstrap.servers": "b"}, **settings
        )
        return find_bounds(self.files, config, {}, until)


@pytest.fixture
def world(broker: FakeBroker, files: FsspecFiles) -> World:
    return World(broker, files)


def test_a_stream_at_rest_is_bounded_by_its_first_batch_and_the_end_of_the_sink(world: World) -> None:
    world.sink.write(b"k", b"of another program, before the stream")
    for batch in range(3):
        world.write(batch)
    assert world.bounds() == Bounds(2, {0: 1}, {0: 31})
    assert world.bounds(until=1) == Bounds(1, {0: 1}, {0: 21})


def test_batches_of_another_query_in_the_same_ledger_bound_nothing(world: World) -> None:
    """A query that took the ledger over counts from 0 again."""
    for batch in range(3):
        world.write(batch, query="earlier")
    for batch in range(2):
        world.write(batch)
    assert world.bounds() == Bounds(1, {0: 30}, {0: 50})
    assert world.bounds(until=0) == Bounds(0, {0: 30}, {0: 40})


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_batch_that_is_committed_while_the_sink_is_read_is_not_taken_for_a_part_of_the_one_before(
    world: World, guarantee: str
) -> None:
    """Without a ledger only the checkpoint shows that the stream has gone on."""
    in_ledger = guarantee == "exactly_once"
    if not in_ledger:
        del world.broker.topics[LEDGER]
    for batch in range(3):
        world.write(batch, in_ledger=in_ledger)
    world.when_the_sink_is_looked_at(lambda: world.write(3, in_ledger=in_ledger))
    found = world.bounds(guarantee=guarantee)
    assert found == (Bounds(2, {0: 0}, {0: 30}) if in_ledger else Bounds(3, {0: 0}, {0: 40}))


def test_a_batch_that_reaches_the_sink_while_that_is_read_is_known_by_its_start(world: World) -> None:
    """It was planned before, so the checkpoint does not change: only the ledger, read later, shows it."""
    for batch in range(3):
        world.write(batch)
    world.files.write("offsets/3", offsets(3))
    world.when_the_sink_is_looked_at(lambda: world.write(3, committed=False))
    assert world.bounds() == Bounds(2, {0: 0}, {0: 30})


def test_a_batch_in_flight_is_left_out_by_its_start(world: World) -> None:
    for batch in range(3):
        world.write(batch, committed=batch < 2)
    world.sink.hidden_from = 25
    assert world.bounds() == Bounds(1, {0: 0}, {0: 20})


def test_a_ledger_topic_with_an_open_transaction_does_not_show_that_nothing_is_in_flight(world: World) -> None:
    """A batch whose record is hidden may be in the sink already."""
    for batch in range(3):
        world.write(batch)
    world.ledger.hidden_from = 3
    world.ledger.write(b"k", b"hidden")
    assert world.bounds() == Bounds(1, {0: 0}, {0: 20})


def test_a_batch_that_is_named_is_not_replaced_by_the_one_before_it(world: World) -> None:
    for batch in range(3):
        world.write(batch)
    world.sink.hidden_from = 29
    assert world.bounds() == Bounds(1, {0: 0}, {0: 20})
    with pytest.raises(CannotTell) as unknown:
        world.bounds(until=2)
    assert unknown.value.kind == "in_flight"


def test_a_batch_of_which_any_lane_is_in_the_sink_is_known_by_its_start(world: World) -> None:
    for batch in range(3):
        world.write(batch)
    world.write(3, committed=False, in_ledger=False)
    other = held(3, 1, 2, query_id=QUERY, sink_start={SINK: {"0": 30}})
    lane = FakePartition()
    lane.write(other.key, other.to_json())
    world.broker.topics[LEDGER].partitions.append(lane)
    assert world.bounds() == Bounds(2, {0: 0}, {0: 30})


# The source


@pytest.mark.parametrize("ranges", [{0: (9, 12)}, {0: (5, 5), 1: (0, 4)}], ids=["all there", "nothing read of one"])
def test_a_source_that_holds_every_record_that_was_read_can_be_read_again(
    broker: FakeBroker, ranges: dict[int, tuple[int, int]]
) -> None:
    broker.topic("orders", 2).partitions[0].low = 9
    refuse_deleted({}, {"orders": ranges})


@pytest.mark.parametrize(
    ("policy", "start", "kind"), [("delete", 8, "source_truncated"), ("compact", 9, "source_compacted")]
)
def test_a_source_that_lacks_records_that_were_read_is_unknown(
    broker: FakeBroker, policy: str, start: int, kind: str
) -> None:
    broker.topic("orders", cleanup_policy=policy).partitions[0].low = 9
    with pytest.raises(CannotTell) as unknown:
        refuse_deleted({}, {"orders": {0: (start, 12)}})
    assert unknown.value.kind == kind


def test_a_source_topic_that_is_gone_is_unknown(broker: FakeBroker) -> None:
    with pytest.raises(CannotTell) as unknown:
        refuse_deleted({}, {"orders": {0: (0, 4)}})
    assert unknown.value.kind == "no_topic"
