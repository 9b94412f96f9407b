"""The batch that an earlier run began and did not commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.ledger_record import BATCH, FORMAT, LedgerRecord


@dataclass(frozen=True)
class UnfinishedBatch:
    """The batch that an earlier run began and did not commit, and how much of it is in the sink."""

    batch: int
    #: How many of its lanes are in the sink.
    lanes_in_sink: int
    #: The format in which these lanes are in the ledger.
    ledger_format: int = FORMAT
    #: The run that wrote these lanes; None if several runs wrote them, or if it is unknown.
    attempt: str | None = None
    #: A user lets the stream continue although a replay of the batch differs from these lanes.
    accepted: bool = False

    def is_partly_in_sink(self, lanes: int) -> bool:
        """Whether the sink holds some lanes of the batch and lacks others."""
        return 0 < self.lanes_in_sink < lanes

    def is_one_attempt(self, lanes: int) -> bool:
        """Whether the sink holds every lane of the batch, all from one run.

        False for format 1 of the ledger: its lanes were written without the proof that all of their rows had arrived.
        """
        return self.lanes_in_sink == lanes and self.ledger_format > 1 and (lanes == 1 or self.attempt is not None)


def find_unfinished_batch(
    checkpoint: IntactCheckpoint, ledger: Sequence[LedgerRecord | None], accepted: tuple[str, int] | None
) -> UnfinishedBatch | None:
    """The batch that a checkpoint has begun and not committed, from the last record of each lane of the ledger.

    ``accepted`` is the query and the batch whose different replay a user has accepted.
    """
    batch = checkpoint.in_doubt
    if batch is None:
        return None
    query = checkpoint.query_id
    in_sink = [r for r in ledger if r is not None and r.kind == BATCH and (r.query_id, r.batch) == (query, batch)]
    ledger_format = in_sink[0].format if in_sink else FORMAT
    attempts = {r.attempt or None for r in in_sink}
    attempt = attempts.pop() if len(attempts) == 1 else None
    return UnfinishedBatch(batch, len(in_sink), ledger_format, attempt, accepted == (query, batch))
