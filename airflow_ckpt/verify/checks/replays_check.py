"""Finds batches whose replay differed from the sink, in the stream's list of replays."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from airflow_ckpt.verify.verdict import REPLAY_ACCEPTED, Finding, Verdict
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.run_files.damaged_files import naming_file
from ckpt_stream.protocol.run_files.record_files import REPLAYS, list_from_json
from ckpt_stream.protocol.storage import ReadableFiles


def add_replays(verdict: Verdict, files: ReadableFiles, batches: Collection[tuple[str, int]] | None = None) -> None:
    """Add the replays of the verdict's batches; by default the replays of the checkpoint's query up to the last batch."""
    if batches is None:
        query = read_checkpoint(files).query_id
        batches = {
            (query or "", number) for number in range((-1 if verdict.last_batch is None else verdict.last_batch) + 1)
        }
    for found in replays(files, batches):
        (verdict.findings if found.kind == REPLAY_ACCEPTED else verdict.notes).append(found)


def replays(files: ReadableFiles, batches: Collection[tuple[str, int]]) -> Iterator[Finding]:
    """A finding for each replay of these batches, which are given by query and number."""
    with naming_file(REPLAYS):
        known = [(entry, int(entry["batch"])) for entry in list_from_json(files.read(REPLAYS), "list of replays")]
    for entry, batch in known:
        query = str(entry.get("query_id"))
        if (query, batch) in batches:
            yield _finding(entry, query, batch)


def _finding(entry: dict[str, Any], query: str, batch: int) -> Finding:
    lanes = ", ".join(map(str, entry.get("lanes", ()))) or "unknown"
    replayed = f"Batch {batch} of query {query} replayed differently (lanes {lanes}, run {entry.get('run')})"
    helps = "make the transform a function of its input alone"
    if not entry.get("accepted"):
        what = f"{replayed}; the sink holds the complete attempt that was committed before."
        return Finding("replay_differed", what, helps, batch=batch, violation=False, query=query)
    what = (
        f"{replayed} from the lanes in the sink, and a user let the stream continue: records of it may be lost or doubled, "
        "which the ledger does not show."
    )
    helps = f"compare the batch with its source, or verify at depth `recompute`; {helps}"
    return Finding(REPLAY_ACCEPTED, what, helps, batch=batch, violation=False, query=query)
