"""Another number of lanes while a batch is in doubt of which no lane is in the sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR
from tests.support.streams import StreamUnderTest

pytestmark = [pytest.mark.integration, pytest.mark.faults]


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_that_died_before_its_first_lane_committed_is_done_with_other_lanes(
    spark: Any, stream: Callable[..., StreamUnderTest], batch: int
) -> None:
    under_test = stream(lanes=3, max_offsets_per_batch=100)
    values = [f"value-{i:03d}" for i in range(300)]
    under_test.feed(*values, keys=29)
    crashed = under_test.crash_at(crash_points.AFTER_FLUSH, batch=batch, lane=0, master="local[1]")
    assert crashed.hit is not None, crashed.log[-2000:]
    assert (under_test.last_batch("offsets"), under_test.last_batch("commits")) == (batch, batch - 1 if batch else None)

    code, line = under_test.drive(spark, lambda events: events.select("key", "value"), lanes=2)

    assert code == 0, line
    assert under_test.values() == values
    assert {(r.lane, r.lanes) for r in under_test.ledger() if (r.batch, r.kind) == (batch, "batch")} == {(0, 2), (1, 2)}
    anchors = [(r.batch, r.lane, r.lanes) for r in under_test.ledger() if r.kind == ANCHOR]
    assert anchors == [(batch - 1, lane, 2) for lane in range(3)]
