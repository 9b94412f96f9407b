"""What bounds a recomputation in the sink, while a stream rests, runs, or holds its readers back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ckpt_stream import recompute_range
from ckpt_stream.config import StreamConfig
from ckpt_stream.decision import CheckpointEnd
from ckpt_stream.recompute import source_ranges
from ckpt_stream.recompute_range import Bounds, CannotTell, TopicEnds, _Ledger, _starts, find_bounds
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

CONFIG = StreamConfig("s", "file:/c", ("in",), "out", {"bootstrap.servers": "b"})


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
    ) -> None:
        ends = TopicEnds({0: earliest}, {0: stable}, {0: stable if high is None else high}, policy)
        ledger = _Ledger({batch: {0: offset} for batch, offset in (starts or {}).items()})
        checkpoint = CheckpointEnd("q", committed if newest is None else newest, committed, {})
        monkeypatch.setattr(recompute_range, "SETTLE_SECONDS", 0.1)
        monkeypatch.setattr(recompute_range, "topic_ends", lambda kafka, topic: ends)
        monkeypatch.setattr(recompute_range, "_read_ledger", lambda *_: ledger)
        monkeypatch.setattr(recompute_range, "checkpoint_end", lambda files: checkpoint)

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


def test_without_any_bound_it_cannot_be_told(world: Callable[..., None]) -> None:
    world(committed=0, high=120, starts={0: 10})
    assert refusal() == "in_flight"
    world(committed=3, high=120)
    assert refusal() == "in_flight"
    world(committed=2, stable=60, high=120, starts={0: 10, 1: 40, 2: 70})
    assert refusal() == "in_flight", "readers do not see all of batch 1"


def test_a_batch_can_be_named(world: Callable[..., None]) -> None:
    world(committed=2, starts={0: 10, 1: 40, 2: 70})
    assert bounds(until=0) == Bounds(0, {0: 10}, {0: 40})
    assert bounds(until=2).end == {0: 100}
    assert refusal(until=3) == "not_there_yet"


def test_sparks_own_sink_has_no_bound_while_a_batch_is_in_flight(world: Callable[..., None]) -> None:
    config = StreamConfig("s", "file:/c", ("in",), "out", {"bootstrap.servers": "b"}, guarantee="at_least_once")
    world(committed=2, newest=3)
    assert refusal(config=config) == "in_flight"
    world(committed=2)
    assert bounds(config=config) == Bounds(2, {0: 0}, {0: 100})


def test_what_is_gone_keeps_from_telling(world: Callable[..., None]) -> None:
    world(committed=None)
    assert refusal() == "no_batches"
    world(committed=2, earliest=11, starts={0: 10})
    assert refusal() == "sink_truncated"
    world(committed=2, policy="compact,delete", starts={0: 10})
    assert refusal() == "sink_compacted"


def test_an_adopted_sink_whose_beginning_is_forgotten_keeps_from_telling(world: Callable[..., None]) -> None:
    files = Files()
    files.texts["_ckpt/adoption.json"] = "{}"
    world(committed=2, starts={1: 40, 2: 70})
    assert refusal(files=files) == "adopted"
    world(committed=2, starts={0: 10, 1: 40, 2: 70})
    assert bounds(files=files).start == {0: 10}


def test_the_earliest_attempt_of_a_batch_is_its_start() -> None:
    records = [held(1, lane, 2, sink_start={"out": {"0": 5 + lane, "1": 9 - lane}}) for lane in (0, 1)]
    assert _starts(records, "out") == {1: {0: 5, 1: 8}}


def test_the_source_range_goes_from_the_pinned_start_to_the_end_of_the_batch() -> None:
    files = Files()
    files.texts["sources/0/0"] = '\0v1\n{"in":{"0":7}}'
    files.texts["offsets/4"] = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"in":{"0":9,"1":3}}'
    assert source_ranges(files, 4) == {"in": {0: (7, 9), 1: (0, 3)}}, "a partition added later begins at 0"
    with pytest.raises(CannotTell) as refused:
        source_ranges(files, 3)
    assert refused.value.kind == "checkpoint_history"
