"""Why a run ended, out of what Spark throws: our own error's name and words, the batch, the poison record."""

from __future__ import annotations

import re

from ckpt_stream import errors
from ckpt_stream.records import find_poison
from ckpt_stream.run_record import Failure
from ckpt_stream.sink import Progress

_OURS = re.compile(r"ckpt_stream\.errors\.(\w+): (.+)")
#: Spark's own errors that no restart cures.
_HOPELESS = (
    "STREAM_FAILED_INCOMPATIBLE",
    "STATE_STORE_",
    "STREAMING_STATEFUL_OPERATOR",
    "CANNOT_LOAD_STATE_STORE",
    "AnalysisException",
    "PARSE_SYNTAX_ERROR",
)
LONGEST_MESSAGE = 4000


def describe(error: BaseException, progress: Progress | None) -> Failure:
    """The failure as the run record keeps it."""
    batch = progress.current[0] if progress and progress.current else None
    root = progress.error if progress and progress.error is not None else error
    text = f"{root}\n{error}"
    if poison := find_poison(text):
        where = f"{poison['topic']}-{poison['partition']} offset {poison['offset']}"
        return Failure(
            "PoisonRecord", f"{poison.get('reason', 'a record')} at {where}", batch, poison, _may_retry(poison)
        )
    ours = root if isinstance(root, errors.StreamError) else None
    if ours is not None:
        return Failure(type(ours).__name__, _short(str(ours)), batch, None, ours.restart_may_help)
    if found := _OURS.search(text):
        known = getattr(errors, found.group(1), errors.StreamError)
        return Failure(found.group(1), _short(found.group(2)), batch, None, known.restart_may_help)
    return Failure(type(root).__name__, _short(str(root)), batch, None, not any(word in text for word in _HOPELESS))


def _may_retry(poison: dict[str, object]) -> bool:
    """A record that fails once is consumed by the restart; a malformed one under the policy `fail` is there for good."""
    return bool(poison.get("once"))


def _short(text: str) -> str:
    """One line: the cause first, as Spark's messages begin with it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:LONGEST_MESSAGE] if lines else "no message"
