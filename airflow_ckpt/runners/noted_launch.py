"""The launch of a driver, noted in its own folder on the machine that made it.

It is what `airflow-ckpt resume` runs once more. It is never read from the checkpoint's storage: a user who can write there
could run commands as the user who resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_ckpt.runners.private_files import folder_of, read_private, write_private

NOTE = "launch.json"
DOCUMENT = "stream.json"
FORMAT = 1


@dataclass(frozen=True)
class NotedLaunch:
    """The command of a driver; without secrets."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    #: The declaration that it was made from.
    stream: Mapping[str, Any]
    #: A job beside the stream, such as a verification, and not its driver.
    job: bool = False

    @property
    def checkpoint(self) -> str:
        return str(self.stream.get("checkpoint"))


def note_launch(
    folder: Path, argv: Sequence[str], env: Mapping[str, str], stream: Mapping[str, Any], *, job: bool = False
) -> None:
    launch = NotedLaunch(tuple(argv), dict(env), dict(stream), job)
    write_private(folder / NOTE, json.dumps({"format": FORMAT, **asdict(launch)}, indent=1))


def noted_launch(root: Path, token: str) -> NotedLaunch | None:
    """The launch with this token; None where it was not made here, or by a version that did not note it."""
    text = read_private(folder_of(root, token), NOTE)
    if text is None:
        return None
    found = json.loads(text)
    return NotedLaunch(tuple(found["argv"]), found["env"], found["stream"], found["job"])


def public_kafka(root: Path, token: str) -> dict[str, Any]:
    """The Kafka settings that a driver was given, without the secret ones."""
    text = read_private(folder_of(root, token), DOCUMENT)
    return dict(json.loads(text).get("kafka") or {}) if text else {}
