"""What the source has lost before the first batch, and a batch in doubt that is planned anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.checkpoint_log import parse_initial_offsets, parse_offsets
from ckpt_stream.data_loss import Lost
from ckpt_stream.decision import decide
from ckpt_stream.errors import DataLost, OtherInput
from ckpt_stream.ledger import digest
from ckpt_stream.source_gap import GapBatch, SourceGap
from tests.ckpt_stream.moving import MovingCheckpoint, offsets
from tests.ckpt_stream.samples import about_to_write, held

pytestmark = pytest.mark.unit

PINNED = '\0v1\n{"orders": {"0": 5}}'


class Files(MovingCheckpoint):
    """A checkpoint whose source begins at offset 5."""

    def __init__(self, begun: int = 0) -> None:
        super().__init__([], begun=begun)
        self.texts["sources/0/0"] = PINNED

    def write(self, name: str, text: str) -> None:
        self.texts[name] = text


def gap(files: Files, earliest: int, *accepted: Lost) -> SourceGap:
    topics: Any = SimpleNamespace(
        partitions=lambda *given: {"orders": [0]}, earliest=lambda partitions: {"orders": {0: earliest}}
    )
    config: Any = SimpleNamespace(source=("orders",), source_pattern=None, accepted_loss=accepted, checkpoint="c")
    return SourceGap(files, topics, config)  # type: ignore[arg-type]


def test_what_is_lost_before_the_first_batch_is_named_from_the_pinned_start() -> None:
    assert gap(Files(), 9).find() == (Lost("orders", 0, 5, 9),)
    with pytest.raises(DataLost, match="offsets 5 to 8"):
        gap(Files(), 9).refuse_unless_accepted()


def test_the_first_batch_begins_behind_an_accepted_loss() -> None:
    files = Files()
    here = gap(files, 9, Lost("orders", 0, 5, 9))
    assert list(here.batches(in_sink=False)) == []
    assert files.texts["sources/0/0"][0] == PINNED[0]
    assert parse_initial_offsets(files.texts["sources/0/0"]) == {"orders": {"0": 9}}
    assert here.find() == ()


def test_a_stream_without_a_pinned_start_has_lost_nothing() -> None:
    files = Files()
    del files.texts["sources/0/0"]
    assert gap(files, 9).find() == ()


def test_the_plan_of_a_batch_in_doubt_that_is_planned_anew_is_kept_and_named_if_it_turns_out_to_be_in_the_ledger() -> (
    None
):
    files = Files(begun=3)
    files.move(1)
    before = files.texts["offsets/3"]
    assert before == offsets(3)
    batches = gap(files, 35, Lost("orders", 0, 30, 35)).batches(in_sink=False)
    assert next(batches) == GapBatch(3, as_planned=False)
    assert parse_offsets(files.texts["offsets/3"]).kafka == {"orders": {"0": 35}}
    with pytest.raises(OtherInput) as refused:
        decide(held(3, digest=digest(before)), 0, about_to_write(3, digest=digest(files.texts["offsets/3"])))
    kept = [name for name, text in files.texts.items() if text == before]
    assert len(kept) == 1
    assert kept[0] in refused.value.helps
