"""Why a run ended, out of what Spark throws: our own error's name and words, the batch, the poison record."""

from __future__ import annotations

import re

from ckpt_stream import checkpoint_log, errors, ledger
from ckpt_stream.records import find_poison
from ckpt_stream.run_record import Failure
from ckpt_stream.sink import Progress

_OURS = re.compile(r"ckpt_stream\.\w+\.(\w+): (.+)")
#: Where an error may be defined that is raised in a task, so that only its name and words reach the driver.
_HOMES = (errors, ledger, checkpoint_log)
#: How Spark begins to say that its Kafka source has lost records; the error's class and name are not always in its text.
_DATA_LOSS = ("Some data may have been lost", "KAFKA_DATA_LOSS")
#: Spark's own errors that no restart cures.
_HOPELESS = (
    "STREAM_FAILED_INCOMPATIBLE",
    "STATE_STORE_",
    "STREAMING_STATEFUL_OPERATOR",
    "CANNOT_LOAD_STATE_STORE",
    "AnalysisException",
    "PARSE_SYNTAX_ERROR",
    "TopicAuthorizationException",
    "GroupAuthorizationException",
    "SaslAuthenticationException",
    *_DATA_LOSS,
)
LONGEST_MESSAGE = 2000
_FRAME = re.compile(r"\s*(at [\w.$]+|\.\.\. \d+ more)")
_TRACEBACK = "Traceback (most recent call last):"


def is_data_loss(error: BaseException, progress: Progress | None) -> bool:
    """Whether Spark ended the query because its source has lost records."""
    text = f"{error}\n{progress.error if progress else ''}"
    return any(words in text for words in _DATA_LOSS)


def describe(error: BaseException, progress: Progress | None) -> Failure:
    """The failure as the run record keeps it."""
    batch = progress.current[0] if progress and progress.current else None
    root = error
    if progress is not None and progress.error is not None and not isinstance(error, errors.StreamError):
        root = progress.error  # what the sink saw says more than what Spark made of it
    text = f"{root}\n{error}"
    if poison := find_poison(text):
        where = f"{poison['topic']}-{poison['partition']} offset {poison['offset']}"
        return Failure(
            "PoisonRecord", f"{poison.get('reason', 'a record')} at {where}", batch, poison, _may_retry(poison)
        )
    ours = root if isinstance(root, errors.StreamError) else None
    if ours is not None:
        return Failure(type(ours).__name__, _short(str(ours)), batch, None, ours.restart_may_help)
    for found in _OURS.finditer(text):
        if known := _error(found.group(1)):
            return Failure(found.group(1), _short(found.group(2)), batch, None, known.restart_may_help)
    return Failure(type(root).__name__, _short(str(root)), batch, None, not any(word in text for word in _HOPELESS))


def _error(name: str) -> type[errors.StreamError] | None:
    for home in _HOMES:
        found = getattr(home, name, None)
        if isinstance(found, type) and issubclass(found, errors.StreamError):
            return found
    return None


def _may_retry(poison: dict[str, object]) -> bool:
    """A record that fails once is consumed by the restart; a malformed one under the policy `fail` is there for good."""
    return bool(poison.get("once"))


def _short(text: str) -> str:
    """The cause in one line: the end of a Python traceback, the last "Caused by", or what comes before the stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    if _TRACEBACK in text:
        after = text.rpartition(_TRACEBACK)[2].splitlines()
        until = next((i for i, line in enumerate(after) if _FRAME.match(line)), len(after))
        lines = [line.strip() for line in after[:until] if line.strip()][-1:] or lines
    elif causes := [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]:
        lines = causes[-1:]
    return " ".join(lines)[:LONGEST_MESSAGE] if lines else "no message"
