"""The small JSON files beside a checkpoint, below ``_ckpt``: their names, and how they are read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from ckpt_stream.errors import RunRecordError, Torn

T = TypeVar("T")

FORMAT = 1
FOLDER = "_ckpt"
RUNS = f"{FOLDER}/runs"
STOP = f"{FOLDER}/stop.json"
RESTARTS = f"{FOLDER}/restarts"
#: The intents of Airflow's and of users' submissions, each with the number of its entry in the restart history.
INTENTS = f"{FOLDER}/intents"
POISON = f"{FOLDER}/poison.json"
ADOPTION = f"{FOLDER}/adoption.json"
REPLAYS = f"{FOLDER}/replays.json"
ACCEPTED = f"{FOLDER}/accepted.json"
REPLACED = f"{FOLDER}/replaced"
KEEP_REPLAYS = 1000
#: How many poison records are kept besides those that the stream may read again: a recomputation of old batches leaves the same
#: records out. Each of them has ended a run, so this number lasts for a long time.
KEEP_POISON = 1000


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def replaced(batch: int, digest: str) -> str:
    """Where an entry of the offset log is kept when the batch was planned again."""
    return f"{REPLACED}/offsets-{batch}-{digest}"


def to_json(document: Any) -> str:
    """The text of a file, without indentation: Python takes many times longer to write it with indentation."""
    return json.dumps(document, separators=(",", ":"))


def build_dataclass(kind: type[T], document: Any, what: str) -> T:
    """Build a dataclass from a file's fields. Fields of a later version are ignored, so that users can downgrade."""
    if not isinstance(document, Mapping):
        raise RunRecordError(f"The {what} is not a JSON object.")
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    try:
        return kind(**{name: value for name, value in document.items() if name in known})
    except TypeError as e:
        raise RunRecordError(f"The {what} lacks a field: {e}") from e


def parse_document(text: str, what: str) -> dict[str, Any]:
    """The JSON object in a file; ``what`` names the file in errors."""
    try:
        document = json.loads(text)
    except ValueError as e:
        raise Torn(f"The {what} is not JSON: {text[:80]!r}") from e
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise RunRecordError(
            f"The {what} is not of format {FORMAT}; install the version of airflow-ckpt that wrote it.",
            kind="unknown_format",
        )
    return document


def list_to_json(entries: list[dict[str, Any]]) -> str:
    """The text of a file with a list (restarts, poison records)."""
    return to_json({"format": FORMAT, "entries": entries})


def list_from_json(text: str | None, what: str) -> list[dict[str, Any]]:
    """The list in a file; empty if there is no file."""
    if text is None:
        return []
    found = parse_document(text, what).get("entries")
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise RunRecordError(
            f"The {what} holds no list of entries; install the version of airflow-ckpt that wrote it.", kind="no_list"
        )
    return found
