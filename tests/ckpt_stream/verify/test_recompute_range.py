"""What bounds a recomputation in the sink, while a stream rests, runs, or holds its readers back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ckpt_stream.errors import CannotTell
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.ledger_record import sink_starts
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.verify import recompute_range
from ckpt_stream.verify.recompute_range import Bounds, RangeReader, find_bounds, source_ranges
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

CONFIG = StreamConfig(name="s", checkpoint="file:/c", source=("in",), sink="out", kafka={"bootstrap.servers": "b"})


class Files:
    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def exists(self, name: str) -> bool:
        return name in self.texts

    def read(self, name: str) -> str | None:
        return self.texts.get(name)

    def names(self, folder: str) -> list[str]:
        return []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what checkpoint, sink and ledger show."""

    def show(
        *,
        committed: int | None,
        newest: int | None = None,
        stable: int = 100,
        high: int | None = None,
        earliest: int = 0,
        policy: str = "delete",
        starts: dict[int, int] | None = None,
        torn: int | None = None,
    ) -> None:
        ends = TopicEnds({0: earliest}, {0: stable}, {0: stable if high is None else high})
        lanes = [(n, lane, at) for n, at in (starts or {}).items() for lane in (0, 1) if (n, lane) != (torn, 0)]
        records = [held(n, lane, 2, query_id="q", sink_start={"out": {"0": at}}) for n, lane, at in lanes]
        checkpoint = IntactCheckpoint(committed if newest is None else newest, committed, "q")
        monkeypatch.setattr(recompute_range, "WATCH_SECONDS", 0.1)
        monkeypatch.setattr(recompute_range, "admin_client", lambda kafka: None)
        monkeypatch.setattr(RangeReader, "sink_ends", lambda reader: ends)
        monkeypatch.setattr(RangeReader, "sink_policy", lambda reader: policy)
        monkeypatch.setattr(RangeReader, "sink_starts", lambda reader, query: (sink_starts(records, "out"), True))
        monkeypatch.setattr(RangeReader, "checkpoint", lambda reader: checkpoint)

    return show


def bounds(**options: Any) -> Bounds:
    return find_bounds(options.pop("files", Files()), options.pop("config", CONFIG), {}, **options)


def refusal(**options: Any) -> str:
    with pytest.raises(CannotTell) as refused:
        bounds(**options)
    return refused.value.kind


def test_a_resting_stream_is_read_to_its_end(world: Callable[..., None]) -> None:
    world(committed=2, starts={0: 10, 1: 40, 2: 70})
    assert bounds() == Bounds(2, {0: 10}, {0: 100})


def test_a_batch_that_is_in_the_sink_and_not_in_the_commit_log_is_left_out(world: Callable[..., None]) -> None:
    world(committed=2, newest=3, starts={0: 10, 1: 40, 2: 70, 3: 90})
    assert bounds() == Bounds(2, {0: 10}, {0: 90})


def test_a_sink_with_an_open_transaction_is_read_to_a_bound_that_is_known(world: Callable[..., None]) -> None:
    world(committed=2, high=120, starts={0: 10, 1: 40, 2: 70})
    assert bounds() == Bounds(1, {0: 10}, {0: 70})


def test_without_any_bound_the_comparison_is_refused(world: Callable[..., None]) -> None:
    world(committed=0, high=120, starts={0: 10})
    assert refusal() == "in_flight"
    world(committed=3, high=120)
    assert refusal() == "in_flight"
    world(committed=2, stable=30, high=120, starts={0: 10, 1: 40, 2: 70})
    assert refusal() == "in_flight", "readers do not see all of batch 0"


def test_only_the_newest_batch_is_left_out_and_not_all_that_readers_do_not_see(world: Callable[..., None]) -> None:
    """A hanging transaction hides what was committed: a comparison of what lies before it would look clean."""
    world(committed=2, stable=60, high=120, starts={0: 10, 1: 40, 2: 70})
    assert refusal() == "in_flight"
    assert refusal(until=1) == "in_flight"
    world(committed=9, stable=25, high=100, starts={n: n * 10 for n in range(10)})
    assert refusal() == "in_flight"
    assert bounds(until=1) == Bounds(1, {0: 0}, {0: 20}), "a batch that is named, and that readers see"


def test_a_lane_that_the_ledger_lost_does_not_make_the_range_shorter(world: Callable[..., None]) -> None:
    world(committed=3, starts={0: 0, 1: 10, 2: 20, 3: 30}, torn=3)
    assert bounds() == Bounds(3, {0: 0}, {0: 100})


def test_a_ledger_that_lost_its_newest_batches_does_not_make_the_range_shorter(world: Callable[..., None]) -> None:
    world(committed=9, high=120, starts={0: 0, 1: 10, 2: 20, 3: 30})
    assert refusal() == "in_flight"


def test_a_start_that_readers_do_not_see_bounds_nothing(world: Callable[..., None]) -> None:
    """The ledger begins at batch 5: it was made anew, or its history is short."""
    world(committed=8, stable=3, high=120, starts={5: 50, 6: 60, 7: 70, 8: 80})
    assert refusal() == "in_flight"
    assert refusal(until=4) == "in_flight"


def test_a_partition_that_was_added_later_has_no_record_of_the_batches_before(
    world: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world(committed=2, newest=3, starts={0: 10, 1: 40, 2: 70, 3: 90})
    monkeypatch.setattr(RangeReader, "sink_ends", lambda _: TopicEnds({0: 0, 1: 0}, {0: 100, 1: 7}, {0: 100, 1: 7}))
    assert bounds() == Bounds(2, {0: 10, 1: 0}, {0: 90, 1: 0})


def test_a_batch_can_be_named(world: Callable[..., None]) -> None:
    world(committed=2, starts={0: 10, 1: 40, 2: 70})
    assert bounds(until=0) == Bounds(0, {0: 10}, {0: 40})
    assert bounds(until=2).end == {0: 100}
    assert refusal(until=3) == "not_there_yet"
    world(committed=2, high=120, starts={0: 10, 1: 40, 2: 70})
    assert refusal(until=2) == "in_flight", "what is asked for is not replaced by a shorter range"
    world(committed=2)
    assert refusal(until=1) == "in_flight", "a sink at rest ends where batch 2 does"


def test_sparks_own_sink_has_no_bound_while_a_batch_is_in_flight(world: Callable[..., None]) -> None:
    config = StreamConfig(
        name="s",
        checkpoint="file:/c",
        source=("in",),
        sink="out",
        kafka={"bootstrap.servers": "b"},
        guarantee="at_least_once",
    )
    world(committed=2, newest=3)
    assert refusal(config=config) == "in_flight"
    world(committed=2)
    assert bounds(config=config) == Bounds(2, {0: 0}, {0: 100})


def test_an_open_transaction_of_the_ledger_may_be_about_to_write(
    world: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world(committed=2)
    monkeypatch.setattr(RangeReader, "sink_starts", lambda *_: ({}, False))
    assert refusal() == "in_flight"


def test_a_commit_during_the_look_makes_it_no_moment_of_rest(
    world: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world(committed=3)
    looks = [IntactCheckpoint(n, n, "q") for n in (3, 3, 2)]
    monkeypatch.setattr(RangeReader, "checkpoint", lambda _: looks.pop() if len(looks) > 1 else looks[0])
    assert bounds() == Bounds(3, {0: 0}, {0: 100}), "not batch 2: what the sink holds of batch 3 is not of it"


def test_what_is_gone_is_unknown(world: Callable[..., None]) -> None:
    world(committed=None)
    assert refusal() == "no_batches"
    world(committed=2, earliest=11, starts={0: 10})
    assert refusal() == "sink_truncated"
    world(committed=2, policy="compact,delete", starts={0: 10})
    assert refusal() == "sink_compacted"


def test_an_adopted_sink_whose_beginning_is_forgotten_is_unknown(world: Callable[..., None]) -> None:
    files = Files()
    files.texts["_ckpt/adoption.json"] = "{}"
    world(committed=2, starts={1: 40, 2: 70})
    assert refusal(files=files) == "adopted"
    world(committed=2, starts={0: 10, 1: 40, 2: 70})
    assert bounds(files=files).start == {0: 10}


def test_the_source_range_goes_from_the_pinned_start_to_the_end_of_the_batch() -> None:
    files = Files()
    files.texts["sources/0/0"] = '\0v1\n{"in":{"0":7}}'
    files.texts["offsets/4"] = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"in":{"0":9,"1":3}}'
    assert source_ranges(files, 4) == {"in": {0: (7, 9), 1: (0, 3)}}, "a partition added later begins at 0"
    with pytest.raises(CannotTell) as refused:
        source_ranges(files, 3)
    assert refused.value.kind == "checkpoint_history"
