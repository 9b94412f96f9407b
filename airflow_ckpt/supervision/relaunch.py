"""Starts a stream again without Airflow, from the launch that its last submit saved in the work folder of this machine.

Only the token of that submit is stored beside the checkpoint. The command and the declaration come from a folder to which only
this user can write: otherwise every user who can write to the checkpoint's storage could run commands as this user.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.locations import same_place
from airflow_ckpt.exceptions import NeverRan, NotStartable
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.runners.launch_note import (
    DOCUMENT,
    LAUNCH_NOTE,
    SavedLaunch,
    kafka_without_secrets,
    read_launch,
    save_launch,
)
from airflow_ckpt.runners.launcher import DRIVER_LOG, DRIVER_NOTE, EXIT_NOTE
from airflow_ckpt.runners.private_files import (
    SECRETS_FILE,
    folder_of,
    new_folder,
    refuse_shared_folder,
    write_private,
    write_secrets,
)
from airflow_ckpt.runners.spark_submit import SUBMIT_LOG
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.launch_request import LaunchRequest
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.settings.setting import settings_of
from ckpt_stream.protocol.settings.stream_settings import StreamSettings

#: Files of the last run that are not copied for the next run.
_TRACES = (DRIVER_NOTE, EXIT_NOTE, f"{DRIVER_LOG}*", SUBMIT_LOG, SECRETS_FILE, DOCUMENT, LAUNCH_NOTE)


@dataclass(frozen=True)
class LastLaunch:
    """The last submit of a stream, as saved on this machine."""

    root: Path
    token: str
    noted: SavedLaunch
    #: The Kafka settings of that submit, without the secret settings.
    kafka: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        return Stream.from_dict(self.noted.stream)

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.token)


def last_launch(root: Path, checkpoint: str, intent: SubmitIntent | None) -> LastLaunch:
    """Read the launch with the token of the intent. Raises NotStartable if there is none that can be run again."""
    if intent is None:
        raise NotStartable(
            f"{checkpoint} was not submitted by Airflow, so its command is unknown: start it as it was started before.",
            kind="not_submitted",
        )
    if root.is_dir():
        refuse_shared_folder(root)
    noted = read_launch(root, intent.token)
    if noted is None:
        raise NotStartable(
            f"{root} holds no launch {intent.token!r}: it was made on another machine, by another user, by an older version, or "
            f"below another work folder. Submit the stream from its DAG ({intent.by} did last); or run this on the machine of "
            "that submit, as the same user, with AIRFLOW_HOME (or AIRFLOW__AIRFLOW_CKPT__WORK_FOLDER) set as there.",
            kind="not_on_this_machine",
        )
    if noted.job or not same_place(noted.checkpoint, checkpoint):
        what = "a job beside the stream" if noted.job else f"the stream of {noted.checkpoint}"
        raise NotStartable(
            f"The launch {intent.token!r} that is noted beside {checkpoint} is of {what}: another program has written there. "
            "Find out what, then submit the stream from its DAG.",
            kind="of_a_job" if noted.job else "of_another_stream",
        )
    return LastLaunch(root, intent.token, noted, kafka_without_secrets(root, intent.token))


def stream_of(checkpoint: str, intent: SubmitIntent | None, run: RunRecord | None) -> Stream:
    """The stream of a checkpoint, from its files: to observe it, not to start it."""
    if intent is not None and intent.stream:
        return Stream.from_dict({**intent.stream, "checkpoint": checkpoint})
    if run is not None:
        shared = settings_of(StreamSettings)
        settings = {name: value for name, value in run.settings.items() if name in shared}
        return Stream(**{**settings, "checkpoint": checkpoint, "application": "(started by hand)"})
    raise NeverRan(
        f"{checkpoint} has neither a submit nor a run record: no stream of airflow-ckpt ever ran there. Check the path; "
        "`airflow-ckpt inspect` looks at any checkpoint of Spark.",
        kind="never_ran",
    )


def kafka_of(run: RunRecord | None) -> dict[str, str]:
    """The address of a stream's Kafka, from its run record. Other settings are ignored: some make a client run a command."""
    address = (run.settings.get("kafka") or {}).get("bootstrap.servers") if run else None
    return {"bootstrap.servers": str(address)} if address else {}


def runner_of(root: Path, checkpoint: str, intent: SubmitIntent | None) -> Runner | None:
    """The runner that started the newest driver, if it works without Airflow's connections."""
    if intent is None or intent.runner != "process":
        return None
    from airflow_ckpt.runners.process import ProcessRunner

    return ProcessRunner(root, checkpoint)


def relaunch(stream: Stream, request: LaunchRequest, last: LastLaunch, kafka: Mapping[str, Any]) -> Launch:
    """Make a launch for a new run from the last submit, in a new folder."""
    with new_folder(last.root, request.token) as new:
        return _fill(last.folder, new, stream, request, last, kafka)


def _fill(
    old: Path, new: Path, stream: Stream, request: LaunchRequest, last: LastLaunch, kafka: Mapping[str, Any]
) -> Launch:
    shutil.copytree(old, new, ignore=shutil.ignore_patterns(*_TRACES), dirs_exist_ok=True)
    new.chmod(0o700)
    document = request.document_for(stream, kafka)
    write_private(new / DOCUMENT, json.dumps(document, indent=1))
    argv = [part.replace(str(old), str(new)) for part in last.noted.argv]
    secret_files = write_secrets(new, kafka)
    if str(new / SECRETS_FILE) in argv and not secret_files:
        raise NotStartable(
            "The stream's Kafka needs credentials, which are not stored: give them with --kafka-config FILE.",
            kind="no_credentials",
        )
    save_launch(new, argv, last.noted.env, stream.as_dict())
    return Launch(tuple(argv), dict(last.noted.env), new, tuple(secret_files))
