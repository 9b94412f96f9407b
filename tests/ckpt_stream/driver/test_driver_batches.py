"""What one run of the driver hands to the batches of its queries: the sink that it has built, and what it found at its start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.driver import sink
from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic
from ckpt_stream.protocol.run_files.adoption import Adoption
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED
from tests.ckpt_stream.driver.driver_world import NotedWrites, World
from tests.ckpt_stream.moving import QUERY, offsets
from tests.ckpt_stream.samples import held, sink_of
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit


@pytest.fixture
def world(broker: FakeBroker, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(broker, NotedWrites(str(tmp_path)), monkeypatch)


@pytest.fixture
def written(world: World, monkeypatch: pytest.MonkeyPatch) -> list[LaneSpec]:
    """What is written of the one batch that the stream's query runs: the next one of the checkpoint."""
    specs: list[LaneSpec] = []

    def write(rows: Any, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        specs.append(spec)
        return ()

    def run_a_batch(_: Any) -> str:
        batch = max(map(int, world.files.names("commits")), default=-1) + 1
        world.files.write(f"offsets/{batch}", offsets(batch))
        context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": QUERY}.get)
        rows: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
        assert world.driver.sink is not None
        world.driver.sink(rows, batch)
        return FINISHED

    monkeypatch.setattr(sink, "ExactlyOnceWriter", lambda: write)
    world.happens = run_a_batch
    return specs


def in_ledger(world: World, *records: LedgerRecord, partitions: int = 1) -> None:
    topic = world.broker.topic(ledger_topic("orders"), partitions, cleanup_policy="compact")
    for record in records:
        topic.partitions[record.lane].write(record.key, record.to_json())


def begun(world: World, batch: int, lane: int, lanes: int) -> LedgerRecord:
    """What a lane of this checkpoint's query holds."""
    return held(batch, lane, lanes, query_id=QUERY, digest=input_digest(offsets(batch)), topic_id=world.out.id)


def test_a_batch_is_written_for_the_run_and_to_the_topic_that_the_driver_found(
    world: World, written: list[LaneSpec]
) -> None:
    world.committed(2)
    record = world.drive(application_version="2.0")
    assert record.failure is None
    (spec,) = written
    assert (spec.to_write.batch, spec.to_write.query_id, spec.to_write.adopted) == (3, QUERY, None)
    assert spec.settings.sink == sink_of(topic_id=world.out.id)
    assert (spec.settings.run_id, spec.settings.application) == (record.run, "2.0")
    assert spec.settings.ignore_ledger is False


def test_the_first_batch_of_a_query_that_takes_a_ledger_over_knows_where_that_ledger_ends(
    world: World, written: list[LaneSpec]
) -> None:
    in_ledger(world, held(7, query_id="earlier", topic_id=world.out.id, end={"orders": {"0": 80}}))
    assert world.drive(start="ledger").failure is None
    assert world.started == [({"startingOffsets": '{"orders": {"0": 80}}'}, True)]
    assert [(spec.to_write.batch, spec.to_write.adopted) for spec in written] == [(0, Adoption("earlier", 7))]


def test_a_sink_that_is_created_again_before_a_batch_fails_the_run(world: World, written: list[LaneSpec]) -> None:
    run_a_batch = world.happens

    def recreated(progress: Any) -> str:
        world.broker.topic("orders-out")
        return run_a_batch(progress)

    world.happens = recreated
    record = world.drive()
    assert (record.state, record.failure.error if record.failure else None) == (FAILED, "SinkRecreated")
    assert written == []


@pytest.mark.parametrize(
    ("in_sink", "partly"), [([], False), ([0], True), ([1], True)], ids=["no lane", "the first lane", "the other lane"]
)
def test_a_batch_in_doubt_is_partly_in_the_sink_if_a_lane_of_it_is(
    world: World, in_sink: list[int], partly: bool
) -> None:
    world.committed(2)
    world.files.write("offsets/3", offsets(3))
    in_ledger(world, *(begun(world, 3 if lane in in_sink else 2, lane, 2) for lane in range(2)), partitions=2)
    assert world.drive(lanes=2).failure is None
    assert world.partly_in_sink == [partly]
