"""Saves the launch of a driver in its folder on the machine that started it.

`airflow-ckpt resume` runs the saved command again. It is never read from the checkpoint's storage: a user who can write there
could run commands as the user who resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airflow_ckpt.runners.private_files import folder_of, read_private, write_private

LAUNCH_NOTE = "launch.json"
DOCUMENT = "stream.json"
FORMAT = 1


@dataclass(frozen=True)
class SavedLaunch:
    """The command of a driver, without secrets."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    #: The declaration of the driver's stream.
    stream: Mapping[str, Any]
    #: True for a job beside the stream, such as a verification.
    job: bool = False

    @property
    def checkpoint(self) -> str:
        return str(self.stream.get("checkpoint"))


def save_launch(
    folder: Path, argv: Sequence[str], env: Mapping[str, str], stream: Mapping[str, Any], *, job: bool = False
) -> None:
    launch = SavedLaunch(tuple(argv), dict(env), dict(stream), job)
    write_private(folder / LAUNCH_NOTE, json.dumps({"format": FORMAT, **asdict(launch)}, indent=1))


def read_launch(root: Path, token: str) -> SavedLaunch | None:
    """The launch with this token; None if it was made on another machine, or by a version that did not save launches."""
    text = read_private(folder_of(root, token), LAUNCH_NOTE)
    if text is None:
        return None
    found = json.loads(text)
    return SavedLaunch(tuple(found["argv"]), found["env"], found["stream"], found["job"])


def kafka_without_secrets(root: Path, token: str) -> dict[str, Any]:
    """The Kafka settings in a driver's configuration, without the secret settings."""
    text = read_private(folder_of(root, token), DOCUMENT)
    return dict(json.loads(text).get("kafka") or {}) if text else {}
