"""A recomputation from its bounds to its result, on a Kafka in memory; what Spark would compute is only noted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.protocol.checkpoint.checkpoint_log import initial_offsets
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.verify import recompute as under_test
from ckpt_stream.verify import sink_job
from ckpt_stream.verify.recompute import recompute, run
from ckpt_stream.verify.recompute_documents import RecomputeRequest, RecomputeResult
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint
from tests.ckpt_stream.samples import held
from tests.support.fake_kafka import FakeBroker
from tests.support.fake_spark import STATEFUL, STATELESS, FakeFrame, FakeSpark

pytestmark = pytest.mark.unit

SINK, LEDGER = "orders-out", ledger_topic("orders")
NUMBERS = ("expected", "found", "lost", "duplicated", "alien")


class Root(str):
    def toString(self) -> str:
        return str(self)


class Files(FsspecFiles):
    """Files below a folder, as Spark names it; notes what is deleted in any folder."""

    deleted: list[str]

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.root = Root(self.root)

    def delete_folder(self, name: str) -> None:
        self.deleted.append(f"{self.root}/{name}")


class World:
    """A stream that has committed the batches 0 to 2 and rests; its source begins at offset 5, its records in the sink at 1."""

    def __init__(self, broker: FakeBroker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker, self.checkpoint, self.elsewhere = broker, f"{folder}/c", f"{folder}/elsewhere"
        self.files, self.spark, self.plan = Files(self.checkpoint), FakeSpark(), STATELESS
        Files.deleted = []
        for name, text in MovingCheckpoint([], begun=3).texts.items():
            self.files.write(name, text)
        self.files.write("sources/0/0", initial_offsets({"orders": {"0": 5}}))
        broker.topic("orders")
        out = broker.topic(SINK, 2).partitions[0]
        for _ in range(9):
            out.write(None, b"v")
        ledger = broker.topic(LEDGER).partitions[0]
        for batch, at in enumerate((1, 4, 6)):
            record = held(batch, query_id=QUERY, sink_start={SINK: {"0": at, "1": 0}})
            ledger.write(record.key, record.to_json())
        #: Both sides of each comparison.
        self.compared: list[tuple[FakeFrame, FakeFrame]] = []
        #: The last batch of each replay, and its scratch folder.
        self.replayed: list[tuple[int, str, str]] = []
        self.happens: Callable[[str], None] = lambda step: None
        for name, fake in {
            "CheckpointFiles": lambda spark, place: Files(place),
            "select_output": lambda rows: rows,
            "compare_records": self._compare,
            "replay": self._replay,
        }.items():
            monkeypatch.setattr(under_test, name, fake)
        monkeypatch.setattr(sink_job, "CheckpointFiles", lambda spark, place: Files(place))
        monkeypatch.setattr("ckpt_stream.spark.source.without_fallback", lambda rows: rows)

    def _compare(self, result: RecomputeResult, expected: FakeFrame, found: FakeFrame) -> None:
        self.compared.append((expected, found))
        self.happens("compare")
        result.expected = result.found = 8
        result.lost = result.duplicated = result.alien = 0

    def _replay(self, spark: Any, files: Any, stream: Any, last: int, scratch: str, mode: str) -> FakeFrame:
        self.replayed.append((last, scratch, mode))
        self.happens("replay")
        return FakeFrame(options={"replayed": scratch})

    def transform(self, events: FakeFrame) -> FakeFrame:
        self.happens("transform")
        return FakeFrame(self.plan, events.options)

    def config(self, **settings: Any) -> StreamConfig:
        return StreamConfig(
            name="orders", checkpoint=self.checkpoint, source=("orders",), sink=SINK,
            kafka={"bootstrap.servers": "b"}, **settings,
        )  # fmt: skip

    def recompute(self, *, until: int | None = None, scratch: str | None = None, **settings: Any) -> dict[str, Any]:
        return recompute(self.spark, self.config(**settings), self.transform, until=until, scratch=scratch)  # type: ignore[arg-type]

    def run(self, **asked: Any) -> tuple[int, str]:
        request = RecomputeRequest(f"{self.elsewhere}/result.json", **asked)
        return run(self.spark, self.config(), self.transform, request)  # type: ignore[arg-type]

    @property
    def result(self) -> Any:
        text = Files(self.elsewhere).read("result.json")
        return None if text is None else json.loads(text)


@pytest.fixture
def world(broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(broker, tmp_path, monkeypatch)


def fails_at(step: str, error: Exception) -> Callable[[str], None]:
    def happens(reached: str) -> None:
        if reached == step:
            raise error

    return happens


# What is read


def test_a_transform_without_state_is_run_as_one_batch_over_the_whole_range(world: World) -> None:
    result = world.recompute()
    assert (result["mode"], result["last_batch"], result["source_records"]) == ("batch", 2, 25)
    ((expected, found),) = world.compared
    assert expected.ranges == {"orders": {0: (5, 30)}}
    assert found.ranges == {SINK: {0: (1, 9)}}, "without the partition that has no record of the range"
    assert world.replayed == []


def test_a_recomputation_until_a_batch_reads_the_source_and_the_sink_until_its_end(world: World) -> None:
    result = world.recompute(until=1)
    assert (result["last_batch"], result["source_records"]) == (1, 15)
    ((expected, found),) = world.compared
    assert (expected.ranges, found.ranges) == ({"orders": {0: (5, 20)}}, {SINK: {0: (1, 6)}})


def test_a_source_partition_without_a_record_of_the_range_is_not_read(world: World) -> None:
    world.files.write("sources/0/0", initial_offsets({"orders": {"0": 30}}))
    assert world.recompute()["source_records"] == 0
    ((expected, _),) = world.compared
    assert expected.ranges == {}


def test_the_range_is_read_whole_whatever_bounds_the_streams_own_batches(world: World) -> None:
    world.recompute(
        max_offsets_per_batch=3, include_headers=True, source_options={"kafka.max.poll.records": "7"}
    )  # fmt: skip
    ((expected, _),) = world.compared
    assert {"subscribe", "maxOffsetsPerTrigger"}.isdisjoint(expected.options)
    assert (expected.options["failOnDataLoss"], expected.options["includeHeaders"]) == ("true", "true")
    assert (expected.options["kafka.max.poll.records"], expected.options["assign"]) == ("7", '{"orders": [0]}')


# A transform with state


@pytest.mark.parametrize(("settings", "mode"), [({}, "append"), ({"output_mode": "update"}, "update")])
def test_a_transform_with_state_is_replayed_batch_by_batch(world: World, settings: dict[str, Any], mode: str) -> None:
    world.plan = STATEFUL
    assert world.recompute(until=1, **settings)["mode"] == "replay"
    ((last, scratch, output_mode),) = world.replayed
    assert (last, output_mode) == (1, mode)
    ((expected, found),) = world.compared
    assert (expected.options, found.ranges) == ({"replayed": scratch}, {SINK: {0: (1, 6)}})


def test_a_replay_has_a_folder_of_its_own_beside_the_run_record_or_where_the_user_says(world: World) -> None:
    world.plan = STATEFUL
    world.recompute()
    world.recompute()
    world.recompute(scratch=world.elsewhere)
    folders = [scratch for _, scratch, _ in world.replayed]
    places = [scratch.rpartition("/")[0] for scratch in folders]
    assert places == [f"{world.checkpoint}/_ckpt", f"{world.checkpoint}/_ckpt", world.elsewhere]
    assert len(set(folders)) == 3


@pytest.mark.parametrize("step", ["replay", "compare", "nothing"])
def test_the_folder_of_a_replay_is_deleted_whatever_fails(world: World, step: str) -> None:
    world.plan, world.happens = STATEFUL, fails_at(step, RuntimeError("the query failed"))
    world.run()
    assert Files.deleted == [scratch for _, scratch, _ in world.replayed]
    assert len(Files.deleted) == 1


def test_one_batch_needs_no_folder_and_deletes_none(world: World) -> None:
    world.recompute()
    assert Files.deleted == []


# What is unknown


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda world: world.broker.topics.pop(SINK), "no_topic"),
        (lambda world: world.broker.topics.pop("orders"), "no_topic"),
        (lambda world: setattr(world.broker.partition("orders"), "low", 6), "source_truncated"),
        (lambda world: setattr(world.broker.partition(SINK), "low", 2), "sink_truncated"),
        (lambda world: world.files.remove("sources/0/0"), "checkpoint_history"),
    ],
    ids=["no sink", "no source", "source truncated", "sink truncated", "start unknown"],
)
def test_what_cannot_be_compared_is_unknown_and_not_zero(
    world: World, change: Callable[[World], Any], kind: str
) -> None:
    change(world)
    result = world.recompute()
    assert [entry["kind"] for entry in result["unknown"]] == [kind]
    assert all(entry["what"] and entry["helps"] for entry in result["unknown"])
    assert {name: result[name] for name in NUMBERS} == dict.fromkeys(NUMBERS)
    assert world.compared == []


def test_an_offset_before_the_range_may_be_gone_from_the_source(world: World) -> None:
    world.broker.partition("orders").low = 5
    assert world.recompute()["unknown"] == []


# The result


def test_the_result_is_written_with_its_numbers(world: World) -> None:
    code, line = world.run()
    assert code == 0
    assert (world.result["stream"], world.result["sink"], world.result["expected"]) == ("orders", SINK, 8)
    assert "orders" in line


def test_a_run_does_what_it_is_asked_for(world: World) -> None:
    world.plan = STATEFUL
    world.run(until=1, scratch=world.elsewhere)
    ((last, scratch, _),) = world.replayed
    assert (last, scratch.rpartition("/")[0], world.result["last_batch"]) == (1, world.elsewhere, 1)


def test_every_client_of_a_recomputation_gets_the_secrets_that_were_passed_apart(world: World) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "HUSH"}
    world.spark.conf.get = {SECRETS_PROPERTY: json.dumps(login)}.get
    assert world.recompute()["unknown"] == []
    assert {client.settings.get("sasl.password") for client in world.broker.clients} == {"HUSH"}
    read = [frame.options for frame in (*world.spark.streams, *world.spark.batches)]
    assert all("HUSH" in str(options) for options in read)


def test_a_result_that_is_unknown_is_written_too_and_is_no_failure(world: World) -> None:
    del world.broker.topics["orders"]
    assert world.run()[0] == 0
    assert [entry["kind"] for entry in world.result["unknown"]] == ["no_topic"]


def test_a_result_that_cannot_be_written_is_a_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Files, "write", full)
    code, line = world.run()
    assert (code, "OSError" in line, world.result) == (1, True, None)


def test_a_recomputation_that_fails_writes_no_result(world: World) -> None:
    world.happens = fails_at("transform", ValueError("a bug of the transform"))
    code, line = world.run()
    assert (code, "ValueError" in line, world.result) == (1, True, None)
