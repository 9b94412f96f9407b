"""The intent: written beside the checkpoint before a driver is submitted, so that a submitter that dies between the submit
and its answer leads to finding the driver, never to starting a second one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.checkpoint.files import FsspecFiles
from ckpt_stream.files import ReadableFiles
from ckpt_stream.run_record import FOLDER, FORMAT, RunRecordError, now, parse

INTENT = f"{FOLDER}/intent.json"


@dataclass(frozen=True)
class SubmitIntent:
    """Somebody is about to start, or has started, a driver with this token."""

    token: str
    time: str
    #: Who: an Airflow task instance, or user@host.
    by: str
    runner: str
    stream: Mapping[str, Any] = field(default_factory=dict)
    #: The handle of the driver, once there is one.
    handle: Mapping[str, Any] | None = None
    #: The command that was run, for a resume without Airflow; without secrets.
    command: Mapping[str, Any] = field(default_factory=dict)
    #: Who had the driver killed on purpose, and when.
    killed: Mapping[str, str] | None = None
    #: Why there is no driver although the submit is over.
    failed: Mapping[str, str] | None = None

    @property
    def age_from(self) -> datetime:
        return datetime.fromisoformat(self.time)

    def age(self, at: datetime | None = None) -> float:
        return ((at or datetime.now(UTC)) - self.age_from).total_seconds()


def read_intent(files: ReadableFiles) -> SubmitIntent | None:
    text = files.read(INTENT)
    if not text:
        return None
    document = parse(text, "submit intent")
    document.pop("format", None)
    try:
        return SubmitIntent(**document)
    except TypeError as e:
        raise RunRecordError(f"The submit intent has unknown or missing fields: {e}") from e


def write_intent(files: FsspecFiles, intent: SubmitIntent) -> SubmitIntent:
    files.write(INTENT, json.dumps({"format": FORMAT, **_fields(intent)}, indent=1, sort_keys=True))
    return intent


def _fields(intent: SubmitIntent) -> dict[str, Any]:
    return {name: getattr(intent, name) for name in intent.__dataclass_fields__}


def answered(files: FsspecFiles, intent: SubmitIntent, handle: Mapping[str, Any]) -> SubmitIntent:
    return write_intent(files, replace(intent, handle=handle))


def noted_failure(files: FsspecFiles, intent: SubmitIntent, message: str) -> SubmitIntent:
    return write_intent(files, replace(intent, failed={"message": message, "time": now()}))


def noted_kill(files: FsspecFiles, intent: SubmitIntent, by: str) -> SubmitIntent:
    return write_intent(files, replace(intent, killed={"by": by, "time": now()}))
