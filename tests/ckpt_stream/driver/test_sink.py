"""The sink, with a writer of the test's own: what it reads for a batch, what it has written, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from ckpt_stream.driver.lane_spec import LaneSettings, LaneSpec
from ckpt_stream.driver.sink import Sink
from ckpt_stream.driver.unfinished_batch import UnfinishedBatch
from ckpt_stream.errors import ReplayDiffers, SinkRecreated, StopBeforeBatch, StreamError
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.run_files.record_files import REPLAYS, list_from_json
from tests.ckpt_stream.moving import offsets
from tests.ckpt_stream.samples import sink_of
from tests.support.fake_clock import FakeClock

pytestmark = pytest.mark.unit

QUERY = "query-1"
ENDS = {"orders-out": {"0": 40}}
DIFFERS = ReplayDiffers("found", "risk", "helps")


class Writer:
    """Notes what it is given; answers with one result per lane."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, LaneSpec]] = []
        self.happens: Callable[[], None] = lambda: None
        self.differing: set[int] = set()

    def __call__(self, rows: Any, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        self.given.append((rows, spec))
        self.happens()
        return tuple(
            {"lane": lane, "differs": lane in self.differing, "records": 5, "dead_letters": 0, "skipped": False}
            for lane in range(spec.settings.sink.lanes)
        )

    @property
    def specs(self) -> list[LaneSpec]:
        return [spec for _, spec in self.given]


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def checkpoint(files: FsspecFiles) -> FsspecFiles:
    """A checkpoint whose offset log has the entries 0 to 3; its source began at offset 5."""
    files.write("sources/0/0", '\0v1\n{"orders": {"0": 5}}')
    for batch in range(4):
        files.write(f"offsets/{batch}", offsets(batch))
    return files


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr("ckpt_stream.driver.sink.time", fake)
    return fake


@pytest.fixture
def new(checkpoint: FsspecFiles, writer: Writer, clock: FakeClock) -> Callable[..., Sink]:
    def make(
        lanes: int = 1,
        unfinished: UnfinishedBatch | None = None,
        *,
        min_pause: float = 0.0,
        keeps_state: bool = False,
        sink_ends: Callable[[], Any] = lambda: ENDS,
    ) -> Sink:
        settings = LaneSettings(sink_of(lanes), None, {}, "run-2", "1.0", 60_000, 100)
        made = Sink(checkpoint, settings, writer, min_pause, sink_ends, unfinished)  # type: ignore[arg-type]
        made.keeps_state = keeps_state
        return made

    return make


def rows(query: str | None = QUERY) -> Any:
    """Rows of a query that Spark names; to keep them gives `fixed`."""
    context = SimpleNamespace(getLocalProperty={"sql.streaming.queryId": query}.get)
    session = SimpleNamespace(sparkContext=context)
    return SimpleNamespace(sparkSession=session, localCheckpoint=lambda: "fixed")


# What is read


def test_a_batch_is_what_the_entry_of_the_offset_log_says(new: Callable[..., Sink], writer: Writer) -> None:
    new()(rows(), 3)
    (spec,) = writer.specs
    assert (spec.offsets, spec.to_write.digest) == (offsets(3), input_digest(offsets(3)))
    assert (spec.to_write.batch, spec.to_write.query_id) == (3, QUERY)
    assert (spec.start, spec.end) == ({"orders": {"0": 30}}, {"orders": {"0": 40}})
    assert spec.sink_start == ENDS


def test_the_first_batch_begins_where_spark_has_written_down_the_start(
    new: Callable[..., Sink], writer: Writer
) -> None:
    new()(rows(), 0)
    assert writer.specs[0].start == {"orders": {"0": 5}}


def test_a_batch_begins_where_the_batch_before_has_ended(
    new: Callable[..., Sink], writer: Writer, checkpoint: FsspecFiles
) -> None:
    sink = new()
    sink(rows(), 2)
    checkpoint.remove("offsets/2")
    sink(rows(), 3)
    assert writer.specs[1].start == writer.specs[0].end == {"orders": {"0": 30}}


@pytest.mark.parametrize("before", [1, 3])
def test_a_batch_that_does_not_follow_the_last_one_begins_where_the_checkpoint_says(
    new: Callable[..., Sink], writer: Writer, before: int
) -> None:
    sink = new()
    sink(rows(), before)
    sink(rows(), 3)
    assert writer.specs[1].start == {"orders": {"0": 30}}


def test_a_batch_without_an_entry_in_the_offset_log_is_not_written(new: Callable[..., Sink], writer: Writer) -> None:
    with pytest.raises(StreamError, match="offsets/4"):
        new()(rows(), 4)
    assert writer.given == []


def test_a_query_that_spark_does_not_name_is_the_one_of_the_checkpoint(
    new: Callable[..., Sink], writer: Writer, checkpoint: FsspecFiles
) -> None:
    checkpoint.write("metadata", '{"id":"query-of-the-checkpoint"}')
    new()(rows(query=None), 3)
    assert writer.specs[0].to_write.query_id == "query-of-the-checkpoint"


def test_a_batch_of_a_query_that_is_not_named_anywhere_is_not_written(new: Callable[..., Sink], writer: Writer) -> None:
    with pytest.raises(StreamError, match="batch 3"):
        new()(rows(query=None), 3)
    assert writer.given == []


def test_nothing_is_written_to_a_sink_that_is_another_topic_than_before(
    new: Callable[..., Sink], writer: Writer
) -> None:
    def gone() -> Any:
        raise SinkRecreated("found", "risk", "helps")

    sink = new(sink_ends=gone)
    with pytest.raises(SinkRecreated):
        sink(rows(), 3)
    assert writer.given == []
    assert isinstance(sink.progress.error, SinkRecreated)


# What may differ


@pytest.mark.parametrize(
    ("lanes", "keeps_state", "may_differ"), [(1, False, True), (1, True, False), (2, False, False), (2, True, False)]
)
def test_a_replay_may_differ_only_if_one_lane_holds_the_whole_batch_and_no_state_follows_from_it(
    new: Callable[..., Sink], writer: Writer, lanes: int, keeps_state: bool, may_differ: bool
) -> None:
    new(lanes, keeps_state=keeps_state)(rows(), 3)
    assert writer.specs[0].may_differ is may_differ


def test_missing_lanes_are_written_after_the_others_were_compared_with_the_same_rows(
    new: Callable[..., Sink], writer: Writer
) -> None:
    new(3, UnfinishedBatch(3, 2, attempt="run-1"))(rows(), 3)
    assert [(given, spec.only_compare, spec.may_differ) for given, spec in writer.given] == [
        ("fixed", True, False),
        ("fixed", False, False),
    ]
    assert writer.specs[1].attempt == "run-1"


def test_missing_lanes_are_not_written_if_the_others_differ(new: Callable[..., Sink], writer: Writer) -> None:
    def differs() -> None:
        raise DIFFERS

    writer.happens = differs
    with pytest.raises(ReplayDiffers):
        new(3, UnfinishedBatch(3, 2, attempt="run-1"))(rows(), 3)
    assert [spec.only_compare for spec in writer.specs] == [True]


def test_missing_lanes_of_an_accepted_replay_are_an_attempt_of_this_run(
    new: Callable[..., Sink], writer: Writer
) -> None:
    new(3, UnfinishedBatch(3, 2, attempt="run-1", accepted=True))(rows(), 3)
    assert [(spec.only_compare, spec.may_differ, spec.attempt) for spec in writer.specs] == [
        (True, True, ""),
        (False, True, ""),
    ]


@pytest.mark.parametrize(
    ("unfinished", "keeps_state", "may_differ"),
    [
        (UnfinishedBatch(3, 2, attempt="run-1"), False, True),
        (UnfinishedBatch(3, 2, attempt="run-1"), True, False),
        (UnfinishedBatch(3, 2, attempt="run-1", accepted=True), True, True),
        (UnfinishedBatch(3, 2, attempt=None), False, False),
        (UnfinishedBatch(3, 2, ledger_format=1, attempt="run-1"), False, False),
        (UnfinishedBatch(3, 0), False, False),
    ],
    ids=["one attempt", "with state", "accepted", "several attempts", "format 1", "no lane in the sink"],
)
def test_an_unfinished_batch_of_two_lanes_may_differ_only_if_nothing_is_left_to_write(
    new: Callable[..., Sink], writer: Writer, unfinished: UnfinishedBatch, keeps_state: bool, may_differ: bool
) -> None:
    new(2, unfinished, keeps_state=keeps_state)(rows(), 3)
    assert [(spec.only_compare, spec.may_differ) for spec in writer.specs] == [(False, may_differ)]


def test_an_unfinished_batch_is_finished_in_the_format_it_was_begun_in_and_the_next_one_is_not(
    new: Callable[..., Sink], writer: Writer
) -> None:
    sink = new(2, UnfinishedBatch(2, 1, ledger_format=1))
    sink(rows(), 2)
    sink(rows(), 3)
    assert [(spec.to_write.batch, spec.ledger_format) for spec in writer.specs] == [(2, 1), (2, 1), (3, 2)]


@pytest.mark.parametrize("accepted", [False, True])
def test_a_replay_that_differs_is_written_down_for_a_verification(
    new: Callable[..., Sink], writer: Writer, checkpoint: FsspecFiles, accepted: bool
) -> None:
    writer.differing = {1}
    new(2, UnfinishedBatch(3, 2, attempt="run-1", accepted=accepted))(rows(), 3)
    (noted,) = list_from_json(checkpoint.read(REPLAYS), "replays")
    assert (noted["query_id"], noted["batch"], noted["lanes"], noted["run"]) == (QUERY, 3, [1], "run-2")
    assert bool(noted.get("accepted")) is accepted


def test_an_identical_replay_leaves_no_note(new: Callable[..., Sink], checkpoint: FsspecFiles) -> None:
    new(2, UnfinishedBatch(3, 2, attempt="run-1"))(rows(), 3)
    assert checkpoint.read(REPLAYS) is None


# What is reported


def test_the_watch_sees_the_batch_while_it_is_written_and_what_was_written_afterwards(
    new: Callable[..., Sink], writer: Writer, clock: FakeClock
) -> None:
    clock.now = 7.0
    sink = new()
    seen: list[Any] = []
    writer.happens = lambda: seen.append((sink.progress.current, list(sink.progress.written)))
    sink(rows(), 3)
    assert seen == [((3, 7.0), [])]
    assert sink.progress.current is None
    assert [(b.batch, b.start, b.end) for b in sink.progress.written] == [
        (3, {"orders": {"0": 30}}, {"orders": {"0": 40}})
    ]
    assert sink.progress.changed.is_set()


def test_a_batch_that_fails_stays_the_current_one_and_is_not_reported_as_written(
    new: Callable[..., Sink], writer: Writer
) -> None:
    def fails() -> None:
        raise RuntimeError("the task failed")

    writer.happens, sink = fails, new()
    with pytest.raises(RuntimeError):
        sink(rows(), 3)
    assert (sink.progress.current or (None,))[0] == 3
    assert sink.progress.written == []
    assert isinstance(sink.progress.error, RuntimeError)


def test_no_batch_begins_after_a_stop_request(new: Callable[..., Sink], writer: Writer) -> None:
    sink = new()
    sink.progress.stopping = True
    with pytest.raises(StopBeforeBatch, match="batch 3"):
        sink(rows(), 3)
    assert (writer.given, sink.progress.current) == ([], None)
    assert isinstance(sink.progress.error, StopBeforeBatch)


def test_the_minimum_pause_follows_the_end_of_a_batch_and_not_its_start(
    new: Callable[..., Sink], writer: Writer, clock: FakeClock
) -> None:
    sink, begun = new(min_pause=2.0), []

    def takes_a_second() -> None:
        begun.append(clock.now)
        clock.now += 1.0

    writer.happens = takes_a_second
    for batch in (1, 2, 3):
        sink(rows(), batch)
    assert begun == pytest.approx([0.0, 3.0, 6.0])


def test_a_stop_request_ends_the_pause(new: Callable[..., Sink], writer: Writer, clock: FakeClock) -> None:
    sink = new(min_pause=3600.0)
    sink(rows(), 2)
    sleep = clock.sleep

    def stop_meanwhile(seconds: float) -> None:
        sleep(seconds)
        sink.progress.stopping = clock.now > 1.0

    clock.sleep = stop_meanwhile  # type: ignore[method-assign]
    with pytest.raises(StopBeforeBatch):
        sink(rows(), 3)
    assert clock.now < 2.0
    assert len(writer.given) == 1
