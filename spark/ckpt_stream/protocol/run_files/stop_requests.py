"""Requests to stop a stream, in a file beside the checkpoint: to which run each applies, and whether it was obeyed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ckpt_stream.errors import RunRecordError
from ckpt_stream.protocol.run_files.record_files import FORMAT, now, parse_document
from ckpt_stream.protocol.run_files.run_record import FINISHED, STOPPED, RunRecord


def read_stop(text: str | None) -> dict[str, Any] | None:
    """Parse a stop request; None if it cannot be parsed, because a damaged file must not end a healthy stream."""
    try:
        return parse_document(text, "stop request") if text else None
    except RunRecordError:
        return None


def asks_to_stop(text: str, record: RunRecord) -> bool:
    """Whether the file, given as text, asks this run to stop."""
    request = read_stop(text)
    return request is not None and applies_to(request, record)


def applies_to(request: Mapping[str, Any], record: RunRecord) -> bool:
    """Whether a stop request applies to this run: it names the run or its token, or was made after the run began.

    A request that was made during a restart may name the previous run.
    """
    if request.get("run") == record.run or (request.get("run") is None and request.get("token") == record.token != ""):
        return True
    begun, asked = record.history[0]["time"] if record.history else "", str(request.get("time", ""))
    named = request.get("run") is not None or request.get("token")
    return asked > begun if named else asked >= begun


def was_obeyed(request: Mapping[str, Any], runs: Iterable[RunRecord]) -> bool:
    """Whether one of these runs ended without an error because of a stop request, or after it."""
    ended = [run for run in runs if run.state in (STOPPED, FINISHED) and run.history]
    asked = str(request.get("time", ""))
    return any(run.run == request.get("run") or run.history[-1]["time"] >= asked for run in ended)


def stop_request(by: str, reason: str = "", run: str | None = None, token: str | None = None) -> str:
    """The text that asks a run to end after its current batch.

    It names the run, or the token of a run that has written no record yet; a request without both applies to any run.
    """
    return json.dumps({"format": FORMAT, "by": by, "reason": reason, "run": run, "token": token, "time": now()})
