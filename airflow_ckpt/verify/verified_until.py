"""Keeps the last verified batch of a stream beside its checkpoint; `since="last"` begins after it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.verdict import CLEAN, HISTORY, LEDGER, REPLAY_ACCEPTED, SINK, TRUNCATED, VIOLATED
from ckpt_stream.protocol.checkpoint.checkpoint_reader import read_checkpoint
from ckpt_stream.protocol.run_files.record_files import FOLDER
from ckpt_stream.protocol.verification.consistent_cut import BatchRange

FILE = f"{FOLDER}/verified.json"
#: depth -> the depths that include it: a verification of the sink also checks the ledger.
COVERED_BY = {LEDGER: (LEDGER, SINK), SINK: (SINK,)}
#: Kinds of findings that no later verification can resolve.
NEVER_KNOWN = {HISTORY, TRUNCATED, REPLAY_ACCEPTED}

log = logging.getLogger(__name__)


def not_yet_verified(files: FsspecFiles, depth: str) -> BatchRange:
    """The range after the batches that were verified at this depth.

    The last verified batch may belong to an earlier query, whose ledger the newest query has adopted. If its query is not in the
    ledger, the range begins at the start of the ledger.
    """
    positions, query = _read(files), read_checkpoint(files).query_id
    known = [positions[by] for by in COVERED_BY.get(depth, ()) if "batch" in positions.get(by, {})]
    if not known:
        return BatchRange()
    own = [position for position in known if position["query_id"] == query]
    newest = max(own, key=lambda position: int(position["batch"])) if own else known[0]
    return BatchRange(int(newest["batch"]), query=str(newest["query_id"]))


def record_verdict(files: FsspecFiles, document: Mapping[str, Any]) -> None:
    """Move the last verified batch, if the verdict allows it.

    A clean verdict moves it, if the range begins directly after it. Batches that are gone from the ledger, or whose records
    retention has deleted, can never be verified: they are skipped after they were reported once, unless the verdict before was a
    violation. After a violation it stays, until a user verifies from a batch of their choice and the verdict is clean.
    """
    positions, depth, reached = _read(files), document["depth"], document.get("reached")
    if depth not in COVERED_BY:
        return
    position = positions.get(depth, {})
    kinds = {finding["kind"] for finding in document["findings"]}
    gone = bool(kinds) and kinds <= NEVER_KNOWN
    violated = position.get("verdict") == VIOLATED
    if document["verdict"] == VIOLATED:
        positions[depth] = {**position, "verdict": VIOLATED}
    elif reached and (document["verdict"] == CLEAN or (gone and not violated)):
        known = [positions[by] for by in COVERED_BY[depth] if "batch" in positions.get(by, {})]
        order = _BatchOrder(document)
        until = max((order.place(p["query_id"], p["batch"]) for p in known), default=order.nothing)
        if order.leaves_out(until) and not violated:
            log.info("the batches after %s are still to be verified: `since=last` continues there", until)
            return
        if violated or order.place(reached["query_id"], reached["batch"]) > until:
            positions[depth] = {**reached, "verdict": document["verdict"]}
        else:
            newest = max(known, key=lambda p: order.place(p["query_id"], p["batch"]))
            positions[depth] = {**newest, "verdict": document["verdict"]}
        if gone:
            log.warning("this range can no longer be verified; the next verification continues after %s", reached)
    else:
        return
    files.write(FILE, json.dumps(positions))


class _BatchOrder:
    """The order of the batches in the ledger when the verdict was reached."""

    #: The place before every batch, for a query that is not in the ledger.
    nothing = (-1, -1)

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._queries = {found["query_id"]: (place, found) for place, found in enumerate(document["queries"])}
        since, query = document["since"], document["since_query"]
        self._begin = self.nothing if query is None else self.place(query, since)

    def place(self, query: str, batch: int) -> tuple[int, int]:
        return (self._queries[query][0], batch) if query in self._queries else self.nothing

    def leaves_out(self, until: tuple[int, int]) -> bool:
        """Whether there are batches between the last verified batch and the range."""
        (place, batch), (begin, since) = until, self._begin
        if begin <= place:
            return begin == place and since > batch + 1
        last = next((found["last"] for at, found in self._queries.values() if at == place), -1)
        return begin > place + 1 or since > 0 or batch < last


def _read(files: FsspecFiles) -> dict[str, dict[str, Any]]:
    try:
        positions = json.loads(files.read(FILE) or "{}")
        if not isinstance(positions, dict) or not all(isinstance(p, dict) for p in positions.values()):
            raise ValueError("not a table of positions")
    except ValueError as e:
        log.warning("%s is not readable (%s): verifying from the start", FILE, e)
        return {}
    return positions
