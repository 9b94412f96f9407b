"""Starts a stream once more without Airflow: from the command and the declaration that were noted when it was submitted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.runners.private_files import SECRETS_FILE, write_private, write_secrets
from airflow_ckpt.streams.control import Order
from airflow_ckpt.streams.intent import SubmitIntent
from airflow_ckpt.streams.stream import OWN, Stream
from ckpt_stream.config import StreamConfig
from ckpt_stream.run_record import RunRecord

#: What a run's copy of its files leaves behind: traces of the run before.
_TRACES = ("driver.json", "exit.json", "driver.log", "submit.log", SECRETS_FILE, "stream.json")


def stream_of(checkpoint: str, intent: SubmitIntent | None, run: RunRecord | None) -> Stream:
    """The stream that uses a checkpoint, as it was declared when it was last started."""
    if intent is not None and intent.stream:
        return Stream.from_dict(intent.stream)
    if run is not None:
        known = {f.name for f in fields(StreamConfig)} & {f.name for f in fields(Stream)} - set(OWN)
        settings = {name: value for name, value in run.settings.items() if name in known}
        return Stream(**{**settings, "checkpoint": checkpoint, "application": "(started by hand)"})
    raise CkptError(
        f"{checkpoint} has neither a submit nor a run record: no stream of airflow-ckpt ever ran there. Check the path; "
        "`airflow-ckpt inspect` looks at any checkpoint of Spark."
    )


def runner_of(intent: SubmitIntent | None) -> Runner | None:
    """The runner that started the newest driver, as far as it can be asked without Airflow's connections."""
    if intent is None or intent.runner != "process":
        return None
    from airflow_ckpt.runners.process import ProcessRunner

    return ProcessRunner(Path(str(intent.command.get("folder", "."))).parent)


def relaunch(stream: Stream, order: Order, intent: SubmitIntent | None, kafka: Mapping[str, Any]) -> Launch:
    """The command of the last submit for a new run, in a folder of its own."""
    if intent is None or not intent.command.get("argv"):
        raise CkptError(f"{stream.name} was not submitted by Airflow, so nobody knows its command: start it as before.")
    old = Path(str(intent.command["folder"]))
    if not old.is_dir():
        raise CkptError(
            f"The files of the last submit ({old}) are not on this machine: run this where {intent.by} ran."
        )
    new = old.parent / order.token
    shutil.copytree(old, new, ignore=shutil.ignore_patterns(*_TRACES))
    new.chmod(0o700)
    document = json.loads(stream.document(kafka, order.token))
    if order.accepted_loss:
        document["accepted_loss"] = [one.as_dict() for one in order.accepted_loss]
    write_private(new / "stream.json", json.dumps(document, indent=1))
    argv = [str(part).replace(str(old), str(new)) for part in intent.command["argv"]]
    secret_files = write_secrets(new, kafka)
    if str(new / SECRETS_FILE) in argv and not secret_files:
        raise CkptError(
            "The stream's Kafka needs credentials, which are kept nowhere: give them with --kafka-config FILE."
        )
    return Launch(tuple(argv), dict(intent.command.get("env") or {}), new, tuple(secret_files))
