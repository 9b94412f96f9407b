"""Rebuilding a ledger: what is in it already and what an interrupted rebuild has left."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream import repair
from ckpt_stream.decision import Intent
from ckpt_stream.errors import LedgerUndecided
from ckpt_stream.ledger import ANCHOR, LedgerRecord, digest
from ckpt_stream.repair import DONE, BatchInDoubt, rebuild
from ckpt_stream.topics import Topic
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit


class World:
    """A checkpoint with a batch in doubt, and a ledger that this test fills."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, batch: int, *ledger: LedgerRecord | None) -> None:
        self.files = MovingCheckpoint([], begun=batch)
        self.files.move(1)
        self.ledger = list(ledger)
        self.stable = True
        topic = Topic("orders-out", "topic-1", len(ledger))
        topics = SimpleNamespace(
            get=lambda *given: topic,
            find=lambda name: topic,
            settle=lambda name: self.stable,
            ensure_ledger=lambda *given: None,
        )
        monkeypatch.setattr(repair, "Topics", lambda kafka: topics)
        monkeypatch.setattr(repair, "fence_lanes", lambda *given: None)
        monkeypatch.setattr(repair, "read_ledger_ends", lambda *given: list(self.ledger))
        monkeypatch.setattr(repair, "write_anchors", self.write_anchors)

    def write_anchors(self, _kafka: Any, at: Intent, _end: Any, lasts: Mapping[int, Any], **_: Any) -> None:
        for lane in lasts:
            self.ledger[lane] = held(
                at.batch, lane, at.lanes, kind=ANCHOR, query_id=at.query_id, digest=at.digest, topic_id=at.topic_id
            )

    def rebuild(self) -> None:
        rebuild(self.files, {}, sink_id="orders", sink="orders-out", lanes=len(self.ledger), in_doubt=DONE)


def of_batch(batch: int, lane: int, **changes: Any) -> LedgerRecord:
    return held(batch, lane, 2, query_id=QUERY, digest=digest(offsets(batch)), **changes)


@pytest.mark.parametrize("batch", [0, 3])
def test_a_rebuild_that_was_interrupted_is_finished_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    first = of_batch(batch - 1, 0) if batch else None
    under_test = World(monkeypatch, batch, first, of_batch(batch, 1, kind=ANCHOR))
    under_test.rebuild()
    assert under_test.ledger == [of_batch(batch, lane, kind=ANCHOR) for lane in range(2)]


def test_a_lane_of_the_batch_in_doubt_that_is_in_the_sink_is_known_and_not_anchored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BatchInDoubt, match="lane 1"):
        World(monkeypatch, 3, of_batch(2, 0), of_batch(3, 1)).rebuild()


def test_a_ledger_that_hides_something_is_not_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = World(monkeypatch, 3, of_batch(2, 0), of_batch(2, 1))
    under_test.stable = False
    before = list(under_test.ledger)
    with pytest.raises(LedgerUndecided):
        under_test.rebuild()
    assert under_test.ledger == before
