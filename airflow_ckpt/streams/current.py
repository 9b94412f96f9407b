"""Which driver a look at the stream is about: the run that counts, and the intent it was started with.

Runs are named by the clocks of their hosts and intents carry Airflow's, so drivers that were submitted are ordered by the
number of their intents. Only for a driver that was started by hand there is nothing but the time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from airflow_ckpt.checkpoint.runs import current_run, run_names
from airflow_ckpt.streams.intent import SubmitIntent, read_intent, read_intents
from ckpt_stream.files import ReadableFiles
from ckpt_stream.look_again import Unreadable
from ckpt_stream.run_record import RunRecord, token_of


@dataclass(frozen=True)
class Current:
    """What belongs to one driver. The run is None while it has written no record, the intent if it was started by hand."""

    run: RunRecord | None
    intent: SubmitIntent | None
    #: Why its run could not be read: then nothing is known of it but the intent.
    torn: Unreadable | None = None


def current(files: ReadableFiles) -> Current:
    """The newest driver; or an older one that lives, if the newer one has given way to it."""
    intent = read_intent(files)
    names = run_names(files)
    mine = [name for name in names if intent is not None and token_of(name) == intent.token]
    if intent is not None and mine:
        names = _as_submitted(files, names, mine[-1], intent)
    try:
        run = current_run(files, names)
    except Unreadable as e:
        return Current(None, intent, e)
    if run is None or intent is None or run.token == intent.token:
        return Current(run, intent)
    its_intent = _intent_of(files, run.token)
    if mine or (its_intent is not None and its_intent.number > intent.number):
        # It outlives the newest submit's driver, was started by hand after that, or was submitted during this look.
        return Current(run, its_intent)
    begun = run.history[0]["time"] if run.history else ""
    if its_intent is None and begun and datetime.fromisoformat(begun) > intent.age_from:
        return Current(run, None)
    return Current(None, intent)


def _as_submitted(files: ReadableFiles, names: list[str], newest: str, intent: SubmitIntent) -> list[str]:
    """The runs, oldest first; those of older submits before the newest one's, whatever their names say."""
    at = names.index(newest)
    after = names[at + 1 :]
    older = {name for name in after if (its := _intent_of(files, token_of(name))) and its.number < intent.number}
    return [*names[:at], *(n for n in after if n in older), newest, *(n for n in after if n not in older)]


def _intent_of(files: ReadableFiles, token: str) -> SubmitIntent | None:
    """The intent of a driver that was submitted; an unreadable one of long ago is nobody's."""
    with suppress(Unreadable):
        return next((intent for intent in read_intents(files) if intent.token == token), None)
    return None
