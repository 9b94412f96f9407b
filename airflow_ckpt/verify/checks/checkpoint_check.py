"""Checks that ledger and checkpoint belong together, and that neither is behind the other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_ckpt.verify.verdict import Finding
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.run_files.adoption import Adoption


def check_checkpoint(
    batches: Sequence[Batch], before: IntactCheckpoint, after: IntactCheckpoint, adopted: Adoption | None
) -> Iterator[Finding]:
    """Compare the ledger with the checkpoint, which was read before and after it: batches that a running stream adds meanwhile
    are no violation."""
    if after.query_id is None or not batches:
        return
    newest = batches[-1]
    mine = [b for b in batches if b.query == after.query_id]
    took_over = adopted is not None and (adopted.query_id, adopted.batch) == newest.id
    if newest.query != after.query_id and not took_over:
        yield Finding(
            "foreign_ledger",
            f"The ledger belongs to query {newest.query}, the checkpoint to query {after.query_id}.",
            "check the names: this checkpoint did not write this sink",
        )
        return
    if mine and mine[0] is not batches[0] and not mine[0].cut_off and mine[0].adopted is None:
        yield Finding(
            "foreign_ledger",
            f"Query {after.query_id} of the checkpoint writes to the ledger of query {batches[0].query}, but no record shows "
            'that it has adopted that ledger (`start="ledger"`).',
            "find out which of the two queries the sink belongs to: the sink may hold each record from both",
            **mine[0].where,
        )
    complete = max((b.number for b in mine if not b.missing), default=mine[-1].number if mine else -1)
    if before.committed is not None and complete < before.committed:
        yield Finding(
            "ledger_behind",
            f"The checkpoint has committed batch {before.committed}, the ledger ends with "
            + (f"batch {complete}." if mine else f"{newest.name}, which is before the first batch of the checkpoint."),
            "records of the batches between are not in the sink, or their ledger records were removed",
            batch=complete + 1,
            query=after.query_id,
        )
    if mine and after.newest is not None and mine[-1].number > after.newest:
        yield Finding(
            "ledger_ahead",
            f"The ledger holds {mine[-1].name}, the checkpoint's newest is {after.newest}.",
            "the checkpoint was rolled back: a resume would be refused",
            **mine[-1].where,
        )
    for batch in mine:
        digest = after.digests.get(batch.number)
        if digest is not None and digest != batch.any_lane.digest:
            yield Finding(
                "other_input",
                f"{batch.title} in the ledger was made from other source offsets than the checkpoint's.",
                "the checkpoint was rolled back or exchanged",
                **batch.where,
            )
