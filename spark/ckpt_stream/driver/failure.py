"""Describes why a run failed: the error's name and message, the batch, the poison record."""

from __future__ import annotations

import re

from ckpt_stream import errors
from ckpt_stream.driver.batch_progress import BatchProgress
from ckpt_stream.protocol.run_files.run_record import Failure
from ckpt_stream.spark.poison_records import find_poison

#: An error that was raised in a task: only its name and its message reach the driver.
_OURS = re.compile(r"ckpt_stream(?:\.\w+)+\.(\w+): (.+)")
#: Found in Spark's messages about lost records of a Kafka source; the error's class is not always in the text.
_DATA_LOSS = ("Some data may have been lost", "KAFKA_DATA_LOSS")
#: Spark's own errors that a restart cannot cure.
_PERMANENT = (
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


def is_data_loss(error: BaseException, progress: BatchProgress | None) -> bool:
    """Whether Spark ended the query because its source has lost records."""
    text = f"{error}\n{progress.error if progress else ''}"
    return any(words in text for words in _DATA_LOSS)


def describe(error: BaseException, progress: BatchProgress | None) -> Failure:
    """The failure as the run record keeps it."""
    batch = progress.current[0] if progress and progress.current else None
    root = error
    if progress is not None and progress.error is not None and not isinstance(error, errors.StreamError):
        root = progress.error  # the sink's own error is more specific than Spark's error around it
    text = f"{root}\n{error}"
    if poison := find_poison(text):
        where = f"{poison['topic']}-{poison['partition']} offset {poison['offset']}"
        return Failure(
            "PoisonRecord", f"{poison.get('reason', 'a record')} at {where}", batch, poison, _restart_passes(poison)
        )
    ours = root if isinstance(root, errors.StreamError) else None
    if ours is not None:
        return Failure(type(ours).__name__, _short(str(ours)), batch, None, ours.restart_may_help)
    for found in _OURS.finditer(text):
        if known := _error(found.group(1)):
            return Failure(found.group(1), _short(found.group(2)), batch, None, known.restart_may_help)
    return Failure(type(root).__name__, _short(str(root)), batch, None, not any(word in text for word in _PERMANENT))


def _error(name: str) -> type[errors.StreamError] | None:
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, errors.StreamError) else None


def _restart_passes(poison: dict[str, object]) -> bool:
    """Whether the next run skips the record: yes after `fail_on`, no for a malformed record with `malformed=fail`."""
    return bool(poison.get("once"))


def _short(text: str) -> str:
    """The cause in one line: the end of a Python traceback, the last "Caused by", or the text before the stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _FRAME.match(line)]
    if _TRACEBACK in text:
        after = text.rpartition(_TRACEBACK)[2].splitlines()
        until = next((i for i, line in enumerate(after) if _FRAME.match(line)), len(after))
        lines = [line.strip() for line in after[:until] if line.strip()][-1:] or lines
    elif causes := [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]:
        lines = causes[-1:]
    return " ".join(lines)[:LONGEST_MESSAGE] if lines else "no message"
