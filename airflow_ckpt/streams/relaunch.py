"""Starts a stream once more without Airflow: from what its last submit has left in the work folder of this machine.

Beside the checkpoint only the token of that submit is noted. What is run, and with which declaration, comes from a folder
that only this user can write: else every user who can write to the checkpoint's storage could run commands as this one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from airflow_ckpt.checkpoint.locations import same_place
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.runners.noted_launch import DOCUMENT, NOTE, NotedLaunch, note_launch, noted_launch, public_kafka
from airflow_ckpt.runners.private_files import (
    SECRETS_FILE,
    folder_of,
    refuse_shared_folder,
    write_private,
    write_secrets,
)
from airflow_ckpt.streams.control import Order
from airflow_ckpt.streams.intent import SubmitIntent
from airflow_ckpt.streams.stream import OWN, Stream
from ckpt_stream.config import StreamConfig
from ckpt_stream.run_record import RunRecord

#: What a run's copy of its files leaves behind: traces of the run before.
_TRACES = ("driver.json", "exit.json", "driver.log*", "submit.log", SECRETS_FILE, DOCUMENT, NOTE)


@dataclass(frozen=True)
class LastLaunch:
    """The last submit of a stream, as this machine knows it."""

    root: Path
    token: str
    noted: NotedLaunch
    #: The Kafka settings that it was given, without the secret ones.
    kafka: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        return Stream.from_dict(self.noted.stream)

    @property
    def folder(self) -> Path:
        return folder_of(self.root, self.token)


def last_launch(root: Path, checkpoint: str, intent: SubmitIntent | None) -> LastLaunch:
    """The launch that the intent names by its token. Raises CkptError with the reason why there is none to be run again."""
    if intent is None:
        raise CkptError(
            f"{checkpoint} was not submitted by Airflow, so its command is unknown: start it as it was started before."
        )
    if root.is_dir():
        refuse_shared_folder(root)
    noted = noted_launch(root, intent.token)
    if noted is None:
        raise CkptError(
            f"{root} holds no launch {intent.token!r}: it was made on another machine, by another user, by an older version, or "
            f"below another work folder. Submit the stream from its DAG ({intent.by} did last); or run this where that ran, as "
            "the same user, with AIRFLOW_HOME (or AIRFLOW__AIRFLOW_CKPT__WORK_FOLDER) set as there."
        )
    if noted.job or not same_place(noted.checkpoint, checkpoint):
        what = "a job beside the stream" if noted.job else f"the stream of {noted.checkpoint}"
        raise CkptError(
            f"The launch {intent.token!r} that is noted beside {checkpoint} is of {what}: another program has written there. "
            "Find out what, then submit the stream from its DAG."
        )
    return LastLaunch(root, intent.token, noted, public_kafka(root, intent.token))


def stream_of(checkpoint: str, intent: SubmitIntent | None, run: RunRecord | None) -> Stream:
    """The stream that uses a checkpoint, as it is noted there: to be looked at, never to be started."""
    if intent is not None and intent.stream:
        return Stream.from_dict({**intent.stream, "checkpoint": checkpoint})
    if run is not None:
        known = {f.name for f in fields(StreamConfig)} & {f.name for f in fields(Stream)} - set(OWN)
        settings = {name: value for name, value in run.settings.items() if name in known}
        return Stream(**{**settings, "checkpoint": checkpoint, "application": "(started by hand)"})
    raise CkptError(
        f"{checkpoint} has neither a submit nor a run record: no stream of airflow-ckpt ever ran there. Check the path; "
        "`airflow-ckpt inspect` looks at any checkpoint of Spark."
    )


def kafka_of(run: RunRecord | None) -> dict[str, str]:
    """Where a stream's Kafka is, as its run record says. No other setting of it: some make a client run a command."""
    address = (run.settings.get("kafka") or {}).get("bootstrap.servers") if run else None
    return {"bootstrap.servers": str(address)} if address else {}


def runner_of(root: Path, checkpoint: str, intent: SubmitIntent | None) -> Runner | None:
    """The runner that started the newest driver, as far as it can be asked without Airflow's connections."""
    if intent is None or intent.runner != "process":
        return None
    from airflow_ckpt.runners.process import ProcessRunner

    return ProcessRunner(root, checkpoint)


def relaunch(stream: Stream, order: Order, last: LastLaunch, kafka: Mapping[str, Any]) -> Launch:
    """The command of the last submit for a new run, in a folder of its own."""
    old, new = last.folder, folder_of(last.root, order.token)
    try:
        return _fill(old, new, stream, order, last, kafka)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _fill(old: Path, new: Path, stream: Stream, order: Order, last: LastLaunch, kafka: Mapping[str, Any]) -> Launch:
    shutil.copytree(old, new, ignore=shutil.ignore_patterns(*_TRACES))
    new.chmod(0o700)
    document = json.loads(stream.document(kafka, order.token))
    if order.accepted_loss:
        document["accepted_loss"] = [one.as_dict() for one in order.accepted_loss]
    write_private(new / DOCUMENT, json.dumps(document, indent=1))
    argv = [part.replace(str(old), str(new)) for part in last.noted.argv]
    secret_files = write_secrets(new, kafka)
    if str(new / SECRETS_FILE) in argv and not secret_files:
        raise CkptError(
            "The stream's Kafka needs credentials, which are kept nowhere: give them with --kafka-config FILE."
        )
    note_launch(new, argv, last.noted.env, stream.as_dict())
    return Launch(tuple(argv), dict(last.noted.env), new, tuple(secret_files))
