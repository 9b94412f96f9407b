"""Batches whose replay differed from what is in the sink, noted beside the checkpoint for the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import (
    ACCEPTED,
    FORMAT,
    KEEP_REPLAYS,
    REPLAYS,
    list_from_json,
    list_to_json,
    now,
    parse_document,
    to_json,
)
from ckpt_stream.protocol.storage import ReadableFiles, WritableFiles


def note_replay(
    files: WritableFiles, query_id: str, batch: int, lanes: Sequence[int], *, run: str, accepted: bool
) -> None:
    """Add a batch. With ``accepted``, a user has let the stream continue although records of it may be lost or doubled."""
    with naming_file(REPLAYS):
        known = list_from_json(files.read(REPLAYS), "list of replays")
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
    files.write(REPLAYS, list_to_json(known[-KEEP_REPLAYS:]))


def note_accepted(files: WritableFiles, query_id: str | None, batch: int, *, by: str) -> None:
    """A user lets the stream finish the batch although it does not replay identically."""
    files.write(ACCEPTED, to_json({"format": FORMAT, "query_id": query_id, "batch": batch, "by": by, "time": now()}))


def accepted_batch(files: ReadableFiles) -> tuple[str, int] | None:
    """Query and batch that a user lets the stream finish although it does not replay identically."""
    with naming_file(ACCEPTED):
        if not (stored := files.read(ACCEPTED)):
            return None
        document = parse_document(stored, "accepted replay")
        return str(document["query_id"]), int(document["batch"])
