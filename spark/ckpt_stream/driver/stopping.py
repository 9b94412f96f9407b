"""How a run obeys a request to stop, which a user may withdraw or replace at the same moment.

A user who withdraws a request deletes its file, and then reads the run record. The run writes into its record that it stops, and
then reads the request's file again. So at least one of the two sees the other's change: either the run continues, or the user
learns that it ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.protocol.run_files.record_files import STOP
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.run_files.stop_requests import applies_to, read_stop, was_obeyed
from ckpt_stream.protocol.storage import WritableFiles, delete_old_files


def take_up(files: WritableFiles, heartbeat: Heartbeat, text: str) -> bool:
    """Write into the run record that the run ends on this request. False if a user has withdrawn or replaced the request."""
    _write_stopping(heartbeat, True)
    if files.read(STOP) == text:
        return True
    _write_stopping(heartbeat, False)
    return False


def remove(files: WritableFiles, text: str) -> bool:
    """Delete a request that is obeyed or outdated. False if another request has replaced it; the other request stays."""
    if files.read(STOP) != text:
        return False
    delete_old_files(files, [STOP])
    return True


def take_up_pending(
    files: WritableFiles, heartbeat: Heartbeat, other_runs: Callable[[], Iterable[RunRecord]], *, submitted: bool
) -> dict[str, Any] | None:
    """The request that ends this run before its first batch, if there is one.

    The request is for this run, or for an earlier run that ended without obeying it. A request for an earlier run ends only a run
    that was ``submitted`` by Airflow: a user who starts a driver without a token wants the stream to run again.
    """
    record = heartbeat.record
    while (text := files.read(STOP)) is not None:
        request = read_stop(text)
        is_own = request is not None and applies_to(request, record)
        if request is None or not (is_own or (submitted and not was_obeyed(request, other_runs()))):
            if remove(files, text):
                return None
        elif take_up(files, heartbeat, text):
            if not is_own:
                files.write(STOP, json.dumps({**request, "run": record.run}))
            return request
    return None


def _write_stopping(heartbeat: Heartbeat, stopping: bool) -> None:
    with heartbeat.lock:
        heartbeat.record.stopping = stopping
        heartbeat.save()
