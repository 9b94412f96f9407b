"""What the driver sends to the tasks that write a batch's lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import FORMAT
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.adoption import Adoption


@dataclass(frozen=True)
class LaneSettings:
    """What the lanes of all batches of a run have in common."""

    sink: SinkIdentity
    #: The end of the ledger that the query has adopted.
    adopted: Adoption | None
    kafka: Mapping[str, Any]
    run_id: str
    application: str
    transaction_timeout_ms: int
    #: How many batches the ledger keeps.
    history: int
    dead_letter_topic: str | None = None
    #: Add a header to each record that names its batch, its lane and its number in the lane.
    audit: bool = False
    #: For crash points only.
    driver_pids: tuple[int, ...] = ()
    #: For tests only: write a replayed batch again, whatever the ledger says.
    ignore_ledger: bool = False


@dataclass(frozen=True)
class LaneSpec:
    """Everything that the lanes of one batch must know."""

    settings: LaneSettings
    to_write: BatchToWrite
    #: The source offsets at which the batch begins and ends.
    start: Offsets
    end: Offsets
    #: The text of the batch's entry in the offset log.
    offsets: str
    #: Where the sink ended before the batch was written.
    sink_start: Offsets
    #: The ledger format of the batch; if some of its lanes are already in the sink, their format.
    ledger_format: int = FORMAT
    #: A lane that is in the sink may differ from its replay, because no other lane will be written from this replay.
    may_differ: bool = False
    #: The run that produced these rows: an earlier run, if its lanes are in the sink and have the same rows.
    attempt: str = ""
    #: Write nothing: only compare the lanes that are in the sink with their replay.
    only_compare: bool = False
    #: The source has lost records of the batch, and a user has accepted that: lanes that are already in the sink have more rows.
    source_lost: bool = False
