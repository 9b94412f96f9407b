"""The sink of a run as the driver builds it, with writers of the test's own: what each lane of its batches is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver import sink as under_test
from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.driver.sink import Sink, new_sink
from ckpt_stream.driver.sink_topic import find_sink_topic
from ckpt_stream.driver.start_of_run import Start
from ckpt_stream.driver.unfinished_batch import UnfinishedBatch
from ckpt_stream.errors import SinkRecreated
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation
from ckpt_stream.protocol.run_files.adoption import Adoption
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.settings.config import StreamConfig
from tests.ckpt_stream.moving import QUERY, offsets
from tests.ckpt_stream.samples import checkpoint_at, sink_of
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

SINK = "orders-out"
KAFKA = {"bootstrap.servers": "localhost:9092", "client.id": "shop"}


class World:
    """A run that has begun, on a Kafka in memory; its writers note what they are given."""

    def __init__(self, broker: FakeBroker, files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self.files = broker, files
        broker.topic(SINK, max_message_bytes="2000000").partitions[0].write(None, b"v")
        broker.topic("orders-dead")
        files.write("offsets/0", offsets(0))
        #: The name of each writer that was called, and what it was given.
        self.written: list[tuple[str, LaneSpec]] = []
        self.java: dict[str, str] = {}
        monkeypatch.setattr(under_test, "ExactlyOnceWriter", lambda: self._writer("exactly_once"))
        monkeypatch.setattr(under_test, "at_least_once_writer", self._at_least_once)

    def _writer(self, name: str) -> Any:
        def write(rows: Any, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
            self.written.append((name, spec))
            return ()

        return write

    def _at_least_once(self, kafka: dict[str, str]) -> Any:
        self.java = kafka
        return self._writer("at_least_once")

    def sink(
        self, *, adopted: Adoption | None = None, unfinished: UnfinishedBatch | None = None,
        kafka: dict[str, Any] = KAFKA, ignore_ledger: bool = False, **settings: Any,
    ) -> Sink:  # fmt: skip
        config = StreamConfig(
            name="orders", checkpoint="c", source=("orders",), sink=SINK, kafka=KAFKA,
            **{"application_version": "2.0", **settings},
        )  # fmt: skip
        record = RunRecord("run-2", "orders", driver={"pid": 8, "jvm_pid": 7})
        start = Start(Reconciliation("line"), checkpoint_at(None, None), {}, adopted, unfinished)
        topic = find_sink_topic(Topics(kafka), config)
        return new_sink(
            self.files, kafka, config, record, sink_of(config.lanes), topic, start, ignore_ledger=ignore_ledger  # type: ignore[arg-type]
        )  # fmt: skip

    def writes(self, **given: Any) -> LaneSpec:
        """What the lanes of this sink's first batch are given."""
        self.sink(**given)(rows(), 0)
        return self.written[-1][1]


def rows() -> Any:
    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": QUERY}.get)
    return SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))


@pytest.fixture
def world(broker: FakeBroker, files: FsspecFiles, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(broker, files, monkeypatch)


# The writer


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_batch_is_written_with_the_guarantee_of_the_stream(world: World, guarantee: str) -> None:
    world.sink(guarantee=guarantee)(rows(), 0)
    assert [name for name, _ in world.written] == [guarantee]


def test_a_stream_is_exactly_once_unless_it_says_otherwise(world: World) -> None:
    world.sink()(rows(), 0)
    assert [name for name, _ in world.written] == ["exactly_once"]


def test_sparks_own_sink_gets_the_connection_as_java_names_it(world: World) -> None:
    world.sink(guarantee="at_least_once")
    assert world.java == {"bootstrap.servers": "localhost:9092", "client.id": "shop", "security.protocol": "PLAINTEXT"}


# What each lane is given


def test_every_lane_knows_the_ledger_that_the_query_has_taken_over(world: World) -> None:
    adopted = Adoption("earlier", 7)
    given = world.writes(adopted=adopted)
    assert (given.settings.adopted, given.to_write.adopted) == (adopted, adopted)
    assert world.writes().to_write.adopted is None


def test_a_lane_has_the_settings_of_the_stream_and_of_the_run(world: World) -> None:
    lane = world.writes(lanes=3, ledger_history=7, transaction_timeout=12.5).settings
    assert (lane.history, lane.transaction_timeout_ms, lane.sink) == (7, 12_500, sink_of(3))
    assert (lane.run_id, lane.application, lane.driver_pids) == ("run-2", "2.0", (7, 8))


@pytest.mark.parametrize(("audit", "header"), [("none", False), ("record", True)])
def test_a_record_is_audited_only_if_the_stream_wants_it(world: World, audit: str, header: bool) -> None:
    assert world.writes(audit=audit).settings.audit is header


def test_a_lane_knows_the_dead_letter_topic(world: World) -> None:
    assert world.writes().settings.dead_letter_topic is None
    lane = world.writes(dead_letter_topic="orders-dead", malformed="dead_letter").settings
    assert lane.dead_letter_topic == "orders-dead"


def test_a_lane_never_ignores_the_ledger_unless_a_test_of_the_project_says_so(world: World) -> None:
    assert world.writes().settings.ignore_ledger is False
    assert world.writes(ignore_ledger=True).settings.ignore_ledger is True


def test_the_batch_that_an_earlier_run_has_left_is_finished_as_it_was_begun(world: World) -> None:
    assert world.writes(unfinished=UnfinishedBatch(0, 0, ledger_format=1)).ledger_format == 1


def test_a_batch_waits_for_the_pause_that_the_stream_wants(
    world: World, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckpt_stream.driver.sink.time", clock)
    sink = world.sink(min_pause=3.0)
    for batch in (0, 1):
        world.files.write(f"offsets/{batch}", offsets(batch))
        sink(rows(), batch)
    assert clock.now == pytest.approx(3.0)


# The sink topic


@pytest.mark.parametrize(
    ("topic_takes", "user_sets", "largest"),
    [("2000000", None, 2_000_000), ("2000000", 5000, 5000), (None, None, None)],
    ids=["as the topic", "as the user", "settings of the topic are hidden"],
)
def test_a_lane_sends_records_as_large_as_the_topic_takes_unless_the_user_sets_another_size(
    world: World, topic_takes: str | None, user_sets: int | None, largest: int | None
) -> None:
    settings = world.broker.topics[SINK].settings
    settings.clear()
    if topic_takes:
        settings["max.message.bytes"] = topic_takes
    kafka = {**KAFKA, "message.max.bytes": user_sets} if user_sets else KAFKA
    lane = world.writes(kafka=kafka).settings
    assert lane.kafka.get("message.max.bytes") == largest
    assert lane.kafka["bootstrap.servers"] == "localhost:9092"


def test_a_batch_names_where_the_sink_ends_before_it(world: World) -> None:
    assert world.writes().sink_start == {SINK: {"0": 1}}


def test_a_sink_that_is_created_again_while_the_stream_runs_ends_the_run_before_the_next_batch(world: World) -> None:
    sink = world.sink()
    sink(rows(), 0)
    world.broker.topic(SINK)
    world.files.write("offsets/1", offsets(1))
    with pytest.raises(SinkRecreated):
        sink(rows(), 1)
    assert [spec.to_write.batch for _, spec in world.written] == [0]
