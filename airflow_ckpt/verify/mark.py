"""How far a stream was verified, kept beside its checkpoint: where `since="last"` goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.checkpoint.reader import read_checkpoint
from airflow_ckpt.verify.verdict import CLEAN, HISTORY, LEDGER, SINK, TRUNCATED, VIOLATED
from ckpt_stream.run_record import FOLDER

FILE = f"{FOLDER}/verified.json"
#: Whoever has read the sink has read the ledger too.
COVERED_BY = {LEDGER: (LEDGER, SINK), SINK: (SINK,)}

log = logging.getLogger(__name__)


def verified_until(files: FsspecFiles, depth: str) -> int | None:
    """The batch up to which the stream was verified at this depth; None: not yet, or it was another stream then."""
    marks, query = _read(files), read_checkpoint(files).query_id
    known = [marks[by] for by in COVERED_BY.get(depth, ()) if "batch" in marks.get(by, {})]
    if others := [mark for mark in known if query is not None and mark["query_id"] != query]:
        log.warning(
            "verified until batch %s, but of query %s; now it is %s", others[0]["batch"], others[0]["query_id"], query
        )
    return max((int(mark["batch"]) for mark in known if mark not in others), default=None)


def note(files: FsspecFiles, document: Mapping[str, Any]) -> None:
    """Move the mark as the verdict allows.

    What is clean moves it, if no batch lies between the mark and the range. What the ledger has forgotten or retention has
    deleted can never be verified: that was reported, once, and the mark moves on, unless a violation is the last that was
    heard. A violation stays where it is until somebody verifies from a batch of their choice and finds that clean.
    """
    marks, depth, reached = _read(files), document["depth"], document.get("reached")
    if depth not in COVERED_BY:
        return
    mark = marks.get(depth, {})
    kinds = {finding["kind"] for finding in document["findings"]}
    gone = bool(kinds) and kinds <= {HISTORY, TRUNCATED}
    violated = mark.get("verdict") == VIOLATED
    if document["verdict"] == VIOLATED:
        marks[depth] = {**mark, "verdict": VIOLATED}
    elif reached and (document["verdict"] == CLEAN or (gone and not violated)):
        known = [marks[by] for by in COVERED_BY[depth] if "batch" in marks.get(by, {})]
        until = max((int(m["batch"]) for m in known if m["query_id"] == reached["query_id"]), default=-1)
        if document["since"] > until + 1 and not violated:
            log.info("the batches from %s on are still to be verified: the mark stays", until + 1)
            return
        batch = reached["batch"] if violated else max(until, reached["batch"])
        marks[depth] = {**reached, "batch": batch, "verdict": document["verdict"]}
        if gone:
            log.warning("this range can never be verified any more; the next verification goes on after %s", reached)
    else:
        return
    files.write(FILE, json.dumps(marks))


def _read(files: FsspecFiles) -> dict[str, dict[str, Any]]:
    try:
        marks = json.loads(files.read(FILE) or "{}")
        if not isinstance(marks, dict) or not all(isinstance(mark, dict) for mark in marks.values()):
            raise ValueError("not a table of marks")
    except ValueError as e:
        log.warning("%s is not readable (%s): verifying from the start", FILE, e)
        return {}
    return marks
