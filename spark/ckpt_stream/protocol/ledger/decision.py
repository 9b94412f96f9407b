"""The table of decisions: what a lane does with a batch, given the last record of its ledger. Pure.

| the last record is           | and                         | then    |
| ---------------------------- | --------------------------- | ------- |
| none at all                  | it is the first batch       | produce |
| the batch before this one    | same query, topic and lanes | produce |
| this batch                   | same input and lanes        | skip    |
| anything else                |                             | refuse  |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ckpt_stream.protocol.ledger.batch_to_write import FIRST_BATCH, BatchToWrite
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord
from ckpt_stream.protocol.ledger.ledger_refusals import (
    foreign_ledger,
    lanes_changed,
    ledger_ahead,
    ledger_lost,
    other_input,
    sink_recreated,
)
from ckpt_stream.protocol.run_files.adoption import Adoption


class Action(Enum):
    PRODUCE = "produce"
    SKIP = "skip"


@dataclass(frozen=True)
class LaneDecision:
    """Whether a lane writes its part of a batch."""

    action: Action
    #: The sums that the rows of a skipped lane must give; None if the ledger holds no sums (an anchor).
    expected: LedgerRecord | None = None


def decide(last: LedgerRecord | None, lane: int, to_write: BatchToWrite) -> LaneDecision:
    """Produce, skip, or raise the refusal that names what is wrong."""
    batch, sink = to_write.batch, to_write.sink
    if last is None:
        if batch == FIRST_BATCH and to_write.adopted is None:
            return LaneDecision(Action.PRODUCE)
        raise ledger_lost(lane, to_write, "holds no record at all")
    position, of_query = last.batch, ""
    if last.query_id != to_write.query_id:
        if to_write.adopted != Adoption(last.query_id, last.batch):
            raise foreign_ledger(last, sink.sink_id, to_write.query_id)
        # The end of an adopted ledger counts as the batch before the first one.
        position, of_query = FIRST_BATCH - 1, f" of the adopted query {last.query_id}"
    if last.topic_id != sink.topic_id:
        raise sink_recreated(
            last,
            sink,
            "go back to the former topic, or accept the loss of the earlier output with "
            f"`airflow-ckpt ledger rebuild {sink.sink_id}`.",
        )
    if position > batch:
        raise ledger_ahead(last, lane, to_write)
    if position < batch - 1:
        raise ledger_lost(lane, to_write, f"ends with batch {last.batch}{of_query}")
    if last.lanes != sink.lanes:
        raise lanes_changed(last, lane, to_write)
    if position == batch - 1:
        return LaneDecision(Action.PRODUCE)
    if last.digest != to_write.digest:
        raise other_input(last, lane, to_write)
    return LaneDecision(Action.SKIP, None if last.kind == ANCHOR else last)
