"""The queries of a run: what Spark is asked to run, and what is done with each batch of a query over an accepted loss."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver.queries import Queries
from ckpt_stream.driver.source_loss import LossBatch
from ckpt_stream.errors import ConfigError, DataLost, StreamError
from ckpt_stream.protocol.settings.config import StreamConfig
from tests.support.fake_spark import STATEFUL, STATELESS, FakeFrame, FakeSpark, FakeWriter

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "b"}


class NotedSink:
    """Notes the batches that it is given."""

    def __init__(self) -> None:
        self.keeps_state = False
        self.batches: list[tuple[int, bool]] = []

    def __call__(self, rows: Any, batch: int, *, source_lost: bool = False) -> None:
        self.batches.append((batch, source_lost))


class World:
    """The queries of a stream whose transform has this plan."""

    def __init__(self, files: FsspecFiles) -> None:
        self.files, self.spark, self.sink = files, FakeSpark(), NotedSink()
        self.plan = STATELESS
        #: The batches after which the source was searched for losses.
        self.searched: list[int] = []
        self.lost = False

    def queries(self, **settings: Any) -> Queries:
        config = StreamConfig(name="orders", checkpoint="c", source=("in",), sink="out", kafka=KAFKA, **settings)
        made: Any = Queries(
            self.spark, config, KAFKA, lambda events: FakeFrame(self.plan), self.files, self.sink, {}  # type: ignore[arg-type]
        )  # fmt: skip
        return made

    def start_stream(self, *, adopts_ledger: bool = False, **settings: Any) -> FakeWriter:
        started: FakeWriter = self.queries(**settings).start_stream({}, adopts_ledger=adopts_ledger)
        return started

    def start_over_loss(self, step: LossBatch) -> FakeWriter:
        def search(batch: int) -> None:
            self.searched.append(batch)
            if self.lost:
                raise DataLost("found", "risk", "helps")

        loss: Any = SimpleNamespace(refuse_unless_accepted=search)
        started: FakeWriter = self.queries().start_over_loss(loss, step)
        return started


@pytest.fixture
def world(files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("ckpt_stream.spark.source.without_fallback", lambda rows: rows)
    return World(files)


# Over an accepted loss


def test_only_a_query_over_an_accepted_loss_reads_past_lost_records(world: World) -> None:
    world.start_over_loss(LossBatch(3, as_planned=False))
    world.start_stream()
    assert [read.options["failOnDataLoss"] for read in world.spark.streams] == ["false", "true"]


def test_a_query_over_an_accepted_loss_runs_one_batch_on_the_streams_checkpoint(world: World) -> None:
    query = world.start_over_loss(LossBatch(3, as_planned=False))
    assert (query.triggers, query.options) == ({"once": True}, {"checkpointLocation": "c"})
    query.write("rows", 3)
    assert world.sink.batches == [(3, False)]


@pytest.mark.parametrize("batch", [2, 4])
def test_another_batch_than_the_one_over_the_loss_is_not_written(world: World, batch: int) -> None:
    query = world.start_over_loss(LossBatch(3, as_planned=True))
    with pytest.raises(StreamError, match=rf"\b{batch}\b.*\b3\b"):
        query.write("rows", batch)
    assert world.sink.batches == []


def test_after_a_batch_that_stays_as_planned_the_source_is_searched_from_that_batch_on(world: World) -> None:
    world.start_over_loss(LossBatch(3, as_planned=True)).write("rows", 3)
    assert (world.sink.batches, world.searched) == ([(3, True)], [3])


def test_a_loss_while_a_batch_stays_as_planned_is_refused_before_spark_commits_it(world: World) -> None:
    world.lost = True
    query = world.start_over_loss(LossBatch(3, as_planned=True))
    with pytest.raises(DataLost):
        query.write("rows", 3)


def test_a_batch_of_lost_offsets_alone_reads_nothing_that_could_get_lost(world: World) -> None:
    world.lost = True
    world.start_over_loss(LossBatch(3, as_planned=False)).write("rows", 3)
    assert (world.sink.batches, world.searched) == ([(3, False)], [])


# State


def over_loss(world: World) -> FakeWriter:
    return world.start_over_loss(LossBatch(3, as_planned=False))


@pytest.mark.parametrize("start", [World.start_stream, over_loss])
@pytest.mark.parametrize(("plan", "keeps_state"), [(STATELESS, False), (STATEFUL, True)], ids=["stateless", "stateful"])
def test_the_sink_knows_whether_the_transform_keeps_state(
    world: World, start: Callable[[World], FakeWriter], plan: str, keeps_state: bool
) -> None:
    world.plan = plan
    start(world)
    assert world.sink.keeps_state is keeps_state


def test_a_transform_that_keeps_state_is_not_started_from_the_ledger(world: World) -> None:
    world.plan = STATEFUL
    with pytest.raises(ConfigError, match="state") as refused:
        world.start_stream(adopts_ledger=True)
    assert not refused.value.restart_may_help


@pytest.mark.parametrize(("plan", "adopts_ledger"), [(STATEFUL, False), (STATELESS, True)])
def test_a_stream_starts_with_state_in_its_own_checkpoint_and_without_state_from_a_ledger(
    world: World, plan: str, adopts_ledger: bool
) -> None:
    world.plan = plan
    query = world.start_stream(adopts_ledger=adopts_ledger)
    query.write("rows", 0)
    assert world.sink.batches == [(0, False)]


# The stream's own query


@pytest.mark.parametrize(
    ("settings", "trigger"),
    [
        ({}, {}),
        ({"trigger_interval": 1.5}, {"processingTime": "1500 milliseconds"}),
        ({"drain": True}, {"availableNow": True}),
        ({"drain": True, "trigger_interval": 1.5}, {"availableNow": True}),
    ],
    ids=["at once", "interval", "drain", "drain with an interval"],
)
def test_a_query_is_triggered_as_the_stream_is_set(
    world: World, settings: dict[str, Any], trigger: dict[str, Any]
) -> None:
    assert world.start_stream(**settings).triggers == trigger


@pytest.mark.parametrize(("settings", "mode"), [({}, "append"), ({"output_mode": "update"}, "update")])
def test_a_query_has_the_streams_name_and_output_mode(world: World, settings: dict[str, Any], mode: str) -> None:
    query = world.start_stream(**settings)
    assert (query.name, query.mode) == ("orders", mode)
