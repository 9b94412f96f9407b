"""Batches whose replay differed from what is in the sink, noted beside the checkpoint for the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from ckpt_stream.damaged import naming
from ckpt_stream.files import WritableFiles
from ckpt_stream.run_record import KEEP_REPLAYS, REPLAYS, entries, listing, now


def note_replay(
    files: WritableFiles, query_id: str, batch: int, lanes: Sequence[int], *, run: str, accepted: bool
) -> None:
    """Add a batch. With ``accepted``, a user has let the stream go on although records of it may be lost or doubled."""
    with naming(REPLAYS):
        known = entries(files.read(REPLAYS), "list of replays")
    if accepted and any(
        (e.get("query_id"), e.get("batch"), e.get("accepted")) == (query_id, batch, True) for e in known
    ):
        return
    known.append(
        {
            "query_id": query_id,
            "batch": batch,
            "lanes": list(lanes),
            "run": run,
            "time": now(),
            "accepted": accepted,
        }
    )
    files.write(REPLAYS, listing(known[-KEEP_REPLAYS:]))
