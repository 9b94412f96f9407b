"""The replay of a stateful stream's batches, with a Spark of the test's own that runs the newest entry of a scratch log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.errors import CannotTell, StreamError
from ckpt_stream.protocol.checkpoint.checkpoint_log import initial_offsets
from ckpt_stream.verify import batch_replay
from ckpt_stream.verify.batch_replay import replay
from tests.ckpt_stream.moving import MovingCheckpoint, offsets
from tests.support.fake_spark import STATEFUL, FakeFrame, FakeSpark, FakeWriter

pytestmark = pytest.mark.unit

BEGIN = initial_offsets({"orders": {"0": 5}})


class World:
    """A checkpoint with three batches, and the scratch folder in which they are run once more."""

    def __init__(self, files: FsspecFiles, scratch: Path) -> None:
        self.files, self.scratch = files, str(scratch)
        self.log = FsspecFiles(f"{scratch}/checkpoint")
        for name, text in MovingCheckpoint([], begun=3).texts.items():
            files.write(name, text)
        files.write("sources/0/0", BEGIN)
        self.spark, self.stream = FakeSpark(), FakeFrame(STATEFUL)
        self.stream.when_started = self._run_newest_entry
        #: The offset log that each query found, and how the query was started.
        self.runs: list[tuple[dict[str, str | None], FakeWriter]] = []
        self.output: list[str] = []
        #: The batch that Spark ends without a commit.
        self.stuck: int | None = None

    def replay(self, last: int = 2) -> FakeFrame:
        frame: Any = replay(self.spark, self.files, self.stream, last, self.scratch, "update")  # type: ignore[arg-type]
        return frame

    def _run_newest_entry(self, query: FakeWriter) -> Any:
        logged = {name: self.log.read(f"offsets/{name}") for name in sorted(self.log.names("offsets"))}
        self.runs.append((logged, query))
        return SimpleNamespace(awaitTermination=lambda: self._run(max(map(int, logged)), query.write))

    def _run(self, batch: int, write: Callable[[Any, int], None]) -> None:
        if batch == self.stuck:
            return
        saved = SimpleNamespace(mode=lambda mode: SimpleNamespace(parquet=lambda path: self.output.append(path)))
        write(SimpleNamespace(select=lambda *columns: SimpleNamespace(write=saved)), batch)
        self.log.write(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def world(files: FsspecFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(batch_replay, "CheckpointFiles", lambda spark, folder: FsspecFiles(folder))
    return World(files, tmp_path / "scratch")


def test_each_batch_is_run_from_its_own_entry_before_spark_knows_of_the_next_one(world: World) -> None:
    world.replay()
    assert [logged for logged, _ in world.runs] == [
        {str(n): offsets(n) for n in range(newest + 1)} for newest in range(3)
    ]


def test_a_replay_begins_where_the_stream_began(world: World) -> None:
    world.replay(last=0)
    assert world.log.read("sources/0/0") == BEGIN


def test_a_replay_runs_the_entry_of_the_log_and_nothing_newer_and_leaves_the_streams_checkpoint_alone(
    world: World,
) -> None:
    world.replay(last=0)
    ((_, query),) = world.runs
    assert (query.triggers, query.mode) == ({"once": True}, "update")
    assert query.options == {"checkpointLocation": f"{world.scratch}/checkpoint"}


def test_the_output_of_every_batch_is_kept_and_read_together(world: World) -> None:
    read = world.replay()
    assert [path.removeprefix(world.scratch) for path in world.output] == ["/output/0", "/output/1", "/output/2"]
    assert read.options["path"] == f"{world.scratch}/output/*"


def test_batches_after_the_last_one_are_not_replayed(world: World) -> None:
    world.replay(last=1)
    assert len(world.runs) == 2


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_log_that_lacks_a_batch_cannot_be_replayed_and_no_batch_is_run(world: World, missing: int) -> None:
    world.files.remove(f"offsets/{missing}")
    with pytest.raises(CannotTell, match=rf"\b{missing}\b") as refused:
        world.replay()
    assert refused.value.kind == "checkpoint_history"
    assert (world.runs, world.log.names("offsets")) == ([], [])


def test_a_batch_that_spark_does_not_commit_ends_the_replay(world: World) -> None:
    world.stuck = 1
    with pytest.raises(StreamError, match=r"\b1\b"):
        world.replay()
    assert len(world.runs) == 2
