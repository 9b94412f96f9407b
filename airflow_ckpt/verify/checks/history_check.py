"""Checks that the ledger holds the batches that are to be verified. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_ckpt.verify.verdict import HISTORY, Finding
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.verification.consistent_cut import BatchRange, ConsistentCut


def check_history(batches: Sequence[Batch], cut: ConsistentCut, wanted: BatchRange) -> Iterator[Finding]:
    """The verdict is unknown if the ledger does not hold the whole range, or if every batch of the range is in flight."""
    begin = 0 if wanted.after is None else wanted.after + 1
    if not batches:
        what = "The ledger holds no batch yet."
        helps = "let the stream run first"
        if begin > 0:
            what = f"The range begins at batch {begin}, but the ledger holds no batch at all."
            helps = "look at `airflow-ckpt ledger show`: the ledger was emptied or created again"
        yield Finding("no_batches", what, helps, violation=False)
        return
    newest = batches[-1]
    if wanted.query in (None, newest.query) and begin > newest.number + 1:
        yield Finding(
            "not_there_yet",
            f"The range begins at batch {begin}, but the newest batch in the ledger is {newest.name}.",
            "choose an earlier batch; if it was verified before, the ledger has lost batches: `airflow-ckpt ledger show`",
            batch=begin,
            violation=False,
        )
    place, end = wanted.slice_of(batches)
    asked = None if wanted.after is None else (wanted.query or newest.query, begin)
    if forgotten := [b for b in batches[place : end + 1] if b.cut_off and b.id != asked]:
        first = forgotten[-1]
        of = f" of query {asked[0]}" if asked and (first.shared or asked[0] != first.query) else ""
        before = ", before which another query wrote the sink" if first.adopted and not first.number else ""
        yield Finding(
            HISTORY,
            f"The oldest batch in the ledger is {first.name}{before}, but the range begins at batch {begin}{of}.",
            f"verify a range that begins at {first.name} or later, more often, or raise ledger_history",
            violation=False,
            **first.where,
        )
    last = cut.batches[-1] if cut.batches else None
    if wanted.until is not None and (last is None or last.query != newest.query or last.number < wanted.until):
        yield Finding(
            "not_there_yet",
            f"Batch {wanted.until} is not in the ledger yet, or still in flight.",
            "verify again when the stream has committed it",
            batch=wanted.until,
            violation=False,
        )
    elif last is None and place < end and cut.left_out is not None and not _only_the_next(wanted, place, end):
        first, newest_wanted = batches[place], batches[end - 1]
        batches_wanted = first.name if first is newest_wanted else f"{first.name} to {newest_wanted.name}"
        yield Finding(
            "in_flight",
            f"No batch of the range was verified: the end of {batches_wanted} in the sink is unknown until its last lane is "
            "committed and readers see the end of every transaction before it.",
            "verify again when the stream has committed another batch or is idle; if no driver is running, the next start "
            "finishes the batch and ends the transaction",
            violation=False,
            **first.where,
        )


def _only_the_next(wanted: BatchRange, place: int, end: int) -> bool:
    """Whether a verification that continues an earlier one finds only one new batch, which the next verification will include."""
    return wanted.after is not None and end - place == 1
