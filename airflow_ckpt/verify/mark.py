"""How far a stream was verified, kept beside its checkpoint: where `since="last"` goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.checkpoint.reader import read_checkpoint
from airflow_ckpt.verify.cut import Range
from airflow_ckpt.verify.verdict import CLEAN, HISTORY, LEDGER, REPLAY_ACCEPTED, SINK, TRUNCATED, VIOLATED
from ckpt_stream.run_record import FOLDER

FILE = f"{FOLDER}/verified.json"
#: Whoever has read the sink has read the ledger too.
COVERED_BY = {LEDGER: (LEDGER, SINK), SINK: (SINK,)}
#: What no later verification can find out either.
NEVER_KNOWN = {HISTORY, TRUNCATED, REPLAY_ACCEPTED}

log = logging.getLogger(__name__)


def not_yet_verified(files: FsspecFiles, depth: str) -> Range:
    """What comes after the batch up to which the stream was verified at this depth. That may have been another query's, from
    which this one has taken over; of one that the ledger does not know, the range begins where the ledger does."""
    marks, query = _read(files), read_checkpoint(files).query_id
    known = [marks[by] for by in COVERED_BY.get(depth, ()) if "batch" in marks.get(by, {})]
    if not known:
        return Range()
    own = [mark for mark in known if mark["query_id"] == query]
    newest = max(own, key=lambda mark: int(mark["batch"])) if own else known[0]
    return Range(int(newest["batch"]), query=str(newest["query_id"]))


def note(files: FsspecFiles, document: Mapping[str, Any]) -> None:
    """Move the mark as the verdict allows.

    What is clean moves it, if no batch lies between the mark and the range. What the ledger has forgotten or retention has
    deleted can never be verified: that was reported, once, and the mark moves on, unless a violation is the last that was
    heard. A violation stays where it is until a user verifies from a batch of their choice and finds that clean.
    """
    marks, depth, reached = _read(files), document["depth"], document.get("reached")
    if depth not in COVERED_BY:
        return
    mark = marks.get(depth, {})
    kinds = {finding["kind"] for finding in document["findings"]}
    gone = bool(kinds) and kinds <= NEVER_KNOWN
    violated = mark.get("verdict") == VIOLATED
    if document["verdict"] == VIOLATED:
        marks[depth] = {**mark, "verdict": VIOLATED}
    elif reached and (document["verdict"] == CLEAN or (gone and not violated)):
        known = [marks[by] for by in COVERED_BY[depth] if "batch" in marks.get(by, {})]
        order = _Order(document)
        until = max((order.place(m["query_id"], m["batch"]) for m in known), default=order.nothing)
        if order.leaves_out(until) and not violated:
            log.info("the batches after %s are still to be verified: the mark stays", until)
            return
        if violated or order.place(reached["query_id"], reached["batch"]) > until:
            marks[depth] = {**reached, "verdict": document["verdict"]}
        else:
            newest = max(known, key=lambda m: order.place(m["query_id"], m["batch"]))
            marks[depth] = {**newest, "verdict": document["verdict"]}
        if gone:
            log.warning("this range can never be verified any more; the next verification goes on after %s", reached)
    else:
        return
    files.write(FILE, json.dumps(marks))


class _Order:
    """The order of the batches, as the ledger had it when the verdict was reached."""

    #: Before every batch; so is what the ledger does not know.
    nothing = (-1, -1)

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._queries = {found["query_id"]: (place, found) for place, found in enumerate(document["queries"])}
        since, query = document["since"], document["since_query"]
        self._begin = self.nothing if query is None else self.place(query, since)

    def place(self, query: str, batch: int) -> tuple[int, int]:
        return (self._queries[query][0], batch) if query in self._queries else self.nothing

    def leaves_out(self, until: tuple[int, int]) -> bool:
        """Whether batches lie between those that were verified before and the range."""
        (place, batch), (begin, since) = until, self._begin
        if begin <= place:
            return begin == place and since > batch + 1
        last = next((found["last"] for at, found in self._queries.values() if at == place), -1)
        return begin > place + 1 or since > 0 or batch < last


def _read(files: FsspecFiles) -> dict[str, dict[str, Any]]:
    try:
        marks = json.loads(files.read(FILE) or "{}")
        if not isinstance(marks, dict) or not all(isinstance(mark, dict) for mark in marks.values()):
            raise ValueError("not a table of marks")
    except ValueError as e:
        log.warning("%s is not readable (%s): verifying from the start", FILE, e)
        return {}
    return marks
