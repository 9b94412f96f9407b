"""The stream's current driver: its run, and the intent that it was started with.

Submitted drivers are ordered by the number of their intents, because runs are named by the clocks of their hosts, and intents
carry the time of Airflow's clock. A driver that was started by hand has no intent, so its time orders it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_ckpt.checkpoint.runs import current_run, run_names
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision.intent_files import read_intent, read_intents
from ckpt_stream.errors import Unreadable
from ckpt_stream.protocol.run_files.run_record import RunRecord, token_of
from ckpt_stream.protocol.storage import ReadableFiles


@dataclass(frozen=True)
class CurrentDriver:
    """One driver. The run is None until it has written a record; the intent is None if it was started by hand."""

    run: RunRecord | None
    intent: SubmitIntent | None
    #: The error, if its run record could not be read: then only its intent is known.
    unreadable: Unreadable | None = None


def current_driver(files: ReadableFiles) -> CurrentDriver:
    """The newest driver; or an older live driver, if the newest was refused because of it."""
    intent = read_intent(files)
    names = run_names(files)
    mine = [name for name in names if intent is not None and token_of(name) == intent.token]
    if intent is not None and mine:
        names = _as_submitted(files, names, mine[-1], intent)
    try:
        run = current_run(files, names)
    except Unreadable as e:
        return CurrentDriver(None, intent, e)
    if run is None or intent is None or run.token == intent.token:
        return CurrentDriver(run, intent)
    its_intent = _intent_of(files, run.token)
    if mine or (its_intent is not None and its_intent.number > intent.number):
        # This run outlived the driver of the newest intent, was started by hand after it, or was submitted during this read.
        return CurrentDriver(run, its_intent)
    begun = run.history[0]["time"] if run.history else ""
    if its_intent is None and begun and datetime.fromisoformat(begun) > intent.age_from:
        return CurrentDriver(run, None)
    return CurrentDriver(None, intent)


def _as_submitted(files: ReadableFiles, names: list[str], newest: str, intent: SubmitIntent) -> list[str]:
    """The runs, oldest first; runs of older submits come before the run of the newest submit, regardless of their file names."""
    at = names.index(newest)
    after = names[at + 1 :]
    older = {name for name in after if (its := _intent_of(files, token_of(name))) and its.number < intent.number}
    return [*names[:at], *(n for n in after if n in older), newest, *(n for n in after if n not in older)]


def _intent_of(files: ReadableFiles, token: str) -> SubmitIntent | None:
    """The intent of a submitted driver; None if it cannot be read or was deleted."""
    with suppress(Unreadable):
        return next((intent for intent in read_intents(files) if intent.token == token), None)
    return None
