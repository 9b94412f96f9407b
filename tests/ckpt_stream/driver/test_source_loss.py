"""What the source has lost before the first batch, and a batch in doubt that is planned again."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.driver.source_loss import LossBatch, SourceLoss
from ckpt_stream.errors import BatchNotRun, DataLost, OtherInput
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest, parse_initial_offsets, parse_offsets
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.ledger.decision import decide
from tests.ckpt_stream.moving import MovingCheckpoint, offsets
from tests.ckpt_stream.samples import about_to_write, held

pytestmark = pytest.mark.unit

COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
PINNED = '\0v1\n{"orders": {"0": 5}}'


class Files(MovingCheckpoint):
    """A checkpoint whose source begins at offset 5."""

    def __init__(self, begun: int = 0) -> None:
        super().__init__([], begun=begun)
        self.texts["sources/0/0"] = PINNED

    def write(self, name: str, text: str) -> None:
        self.texts[name] = text


def gap(files: Files, earliest: int | Iterable[int], *accepted: LostRange) -> SourceLoss:
    """A source that begins at this offset, or at another one at every look; the last one stays."""
    looks = [earliest] if isinstance(earliest, int) else list(earliest)
    topics: Any = SimpleNamespace(
        source_partitions=lambda *given: {"orders": [0]},
        first_offsets=lambda partitions: {"orders": {0: looks.pop(0) if len(looks) > 1 else looks[0]}},
    )
    config: Any = SimpleNamespace(source=("orders",), source_pattern=None, accepted_loss=accepted, checkpoint="c")
    return SourceLoss(files, topics, config)  # type: ignore[arg-type]


def test_a_loss_before_the_first_batch_begins_at_the_start_that_spark_has_written_down() -> None:
    assert gap(Files(), 9).find() == (LostRange("orders", 0, 5, 9),)
    with pytest.raises(DataLost, match=r"\b5\b.*\b8\b"):
        gap(Files(), 9).refuse_unless_accepted()


def test_the_first_batch_begins_after_an_accepted_loss() -> None:
    files = Files()
    here = gap(files, 9, LostRange("orders", 0, 5, 9))
    assert list(here.batches(partly_in_sink=False)) == []
    assert files.texts["sources/0/0"][0] == PINNED[0]
    assert parse_initial_offsets(files.texts["sources/0/0"]) == {"orders": {"0": 9}}
    assert here.find() == ()


def test_a_stream_without_a_start_position_has_lost_nothing() -> None:
    files = Files()
    del files.texts["sources/0/0"]
    assert gap(files, 9).find() == ()


def test_the_earlier_plan_of_a_batch_is_kept_and_named_if_it_turns_out_to_be_in_the_ledger() -> None:
    files = Files(begun=3)
    files.move(1)
    before = files.texts["offsets/3"]
    assert before == offsets(3)
    batches = gap(files, 35, LostRange("orders", 0, 30, 35)).batches(partly_in_sink=False)
    assert next(batches) == LossBatch(3, as_planned=False)
    assert parse_offsets(files.texts["offsets/3"]).kafka == {"orders": {"0": 35}}
    with pytest.raises(OtherInput) as refused:
        decide(
            held(3, digest=input_digest(before)), 0, about_to_write(3, digest=input_digest(files.texts["offsets/3"]))
        )
    kept = [name for name, text in files.texts.items() if text == before]
    assert len(kept) == 1
    assert kept[0] in refused.value.helps


@pytest.mark.parametrize(("planned", "after"), [(0, 7000), (7000, 0)])
def test_a_batch_over_a_loss_is_planned_with_the_watermark_that_the_stream_has_reached(
    planned: int, after: int
) -> None:
    """A watermark that falls back would let late records into windows that are closed already."""
    files = Files(begun=3)
    files.texts["offsets/2"] = offsets(2).replace('"batchWatermarkMs": 0', f'"batchWatermarkMs": {planned}')
    files.texts["commits/2"] = COMMIT.replace(":0", f":{after}")
    assert next(gap(files, 35, LostRange("orders", 0, 30, 35)).batches(partly_in_sink=False)).batch == 3
    assert parse_offsets(files.texts["offsets/3"]).watermark_ms == 7000


# The batches before the stream continues


def run_by_spark(files: Files, loss: SourceLoss, *, partly_in_sink: bool) -> list[tuple[LossBatch, Any]]:
    """Every batch that is requested, with the offsets at which it ends; Spark commits each before the next one."""
    seen = []
    for step in loss.batches(partly_in_sink=partly_in_sink):
        seen.append((step, parse_offsets(files.texts[f"offsets/{step.batch}"]).kafka["orders"]["0"]))
        files.texts[f"commits/{step.batch}"] = COMMIT
    return seen


@pytest.mark.parametrize(
    ("in_doubt", "partly_in_sink", "earliest", "batches"),
    [
        (False, False, 30, []),
        (False, False, 35, [(LossBatch(3, as_planned=False), 35)]),
        (False, True, 35, [(LossBatch(3, as_planned=False), 35)]),
        (True, True, 30, []),
        (True, False, 35, [(LossBatch(3, as_planned=False), 35)]),
        (True, True, 35, [(LossBatch(3, as_planned=True), 40)]),
        (True, True, 45, [(LossBatch(3, as_planned=True), 40), (LossBatch(4, as_planned=False), 45)]),
    ],
    ids=[
        "nothing lost", "at rest", "at rest, and no batch is in doubt", "in doubt, nothing lost", "in doubt, not in the sink",
        "partly in the sink", "partly in the sink, and lost beyond its end",
    ],
)  # fmt: skip
def test_only_a_batch_that_is_partly_in_the_sink_stays_as_it_was_planned(
    in_doubt: bool, partly_in_sink: bool, earliest: int, batches: list[Any]
) -> None:
    files = Files(begun=3)
    if in_doubt:
        files.move(1)
    loss = gap(files, earliest, LostRange("orders", 0, 30, 45))
    assert run_by_spark(files, loss, partly_in_sink=partly_in_sink) == batches
    assert loss.find() == ()


@pytest.mark.parametrize("partly_in_sink", [True, False])
def test_a_first_batch_that_was_planned_before_its_records_were_lost_passes_over_them(partly_in_sink: bool) -> None:
    """It is too late to let the source begin after them."""
    files = Files()
    files.move(1)
    loss = gap(files, 9, LostRange("orders", 0, 5, 9))
    end = 10 if partly_in_sink else 9
    assert run_by_spark(files, loss, partly_in_sink=partly_in_sink) == [(LossBatch(0, as_planned=partly_in_sink), end)]
    assert files.texts["sources/0/0"] == PINNED


@pytest.mark.parametrize("partly_in_sink", [True, False])
def test_a_batch_over_a_loss_that_ends_without_a_commit_is_an_error(partly_in_sink: bool) -> None:
    files = Files(begun=3)
    files.move(1)
    batches = gap(files, 35, LostRange("orders", 0, 30, 35)).batches(partly_in_sink=partly_in_sink)
    assert next(batches).batch == 3
    with pytest.raises(BatchNotRun, match=r"\b3\b"):
        next(batches)


def test_what_is_lost_while_a_batch_stays_as_planned_is_refused_if_it_was_not_accepted() -> None:
    files = Files(begun=3)
    files.move(1)
    loss = gap(files, [35, 45], LostRange("orders", 0, 30, 35))
    batches = loss.batches(partly_in_sink=True)
    assert next(batches) == LossBatch(3, as_planned=True)
    files.texts["commits/3"] = COMMIT
    with pytest.raises(DataLost, match=r"\b40\b.*\b44\b"):
        next(batches)
