"""One driver per checkpoint: a run looks for another live run before it changes anything.

A driver on this machine is alive as long as its process exists, so a killed driver is known to be dead at once. A driver on
another machine counts as dead when the heartbeat in its run record has not changed for a while. If two drivers run despite this,
the fences of the lanes keep the sink correct.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from ckpt_stream.errors import DriverAlive, RunRecordError
from ckpt_stream.machine.process_identity import is_alive_here
from ckpt_stream.protocol.run_files.run_record import MISSED_HEARTBEATS, NOT_ENDED, RUNNING, RunRecord, path_of
from ckpt_stream.protocol.storage import ReadableFiles

PAUSE_SECONDS = 1.0


def read_other(files: ReadableFiles, run: str, heartbeat_seconds: float) -> RunRecord:
    """The run record of the run with this name.

    If the record cannot be read, the result is the record of a running run with the file's text as its heartbeat: a live driver
    replaces the file, so the text changes.
    """
    text: str | None = None
    try:
        text = files.read(path_of(run))
        if text is not None:
            return RunRecord.from_json(text)
    except (RunRecordError, UnicodeDecodeError) as e:
        text = f"{text} {e}"
    return RunRecord(run, "", state=RUNNING, heartbeat=str(text), heartbeat_seconds=heartbeat_seconds)


def refuse_if_alive(
    mine: RunRecord,
    read_others: Callable[[], Iterable[RunRecord]],
    *,
    came_first: Collection[str] = (),
    silent: Mapping[str, str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, str]:
    """Raise DriverAlive if another run on this checkpoint is alive; of two runs that start at once, the later one is refused.

    A run's name is the time on the clock of its machine, which may be wrong, so names decide only between runs that start at
    once. A run that had a record before this run (`came_first`), or that is RUNNING already, is not refused because of this run.

    Returns the last heartbeat of each dead run. A later call that gets this as `silent` does not wait for these runs again.
    """
    known = dict(silent or {})
    first_seen = dict(known)
    # By run, the seconds of the pauses so far. The time of reads does not count: when the storage does not answer, the other
    # driver cannot write its heartbeat either, and may well be alive.
    paused: dict[str, float] = {}
    while True:
        suspects = [
            r
            for r in read_others()
            if r.state in NOT_ENDED and (r.run in came_first or r.run < mine.run or r.state == RUNNING)
        ]
        unsure: list[RunRecord] = []
        for record in suspects:
            alive = is_alive_here(record)
            moved = first_seen.setdefault(record.run, record.heartbeat) != record.heartbeat
            if alive or (alive is None and moved):
                raise _refusal(record)
            limit = record.heartbeat_seconds * MISSED_HEARTBEATS
            if alive is None and record.run not in known and paused.get(record.run, 0.0) < limit:
                unsure.append(record)
        if not unsure:
            return first_seen
        if not paused:
            names = ", ".join(f"{r.run} on {r.driver.get('host')}" for r in unsure)
            say(f"waiting for a heartbeat of {names}")
        sleep(PAUSE_SECONDS)
        for record in unsure:
            paused[record.run] = paused.get(record.run, 0.0) + PAUSE_SECONDS


def _refusal(record: RunRecord) -> DriverAlive:
    driver, checkpoint = record.driver, record.settings.get("checkpoint", "<checkpoint>")
    return DriverAlive(
        f"Run {record.run} of this stream is alive on {driver.get('host')} (process {driver.get('pid')}, last heartbeat "
        f"{record.heartbeat}).",
        "Two drivers on one checkpoint fence each other without end, and on some storage they damage the checkpoint.",
        f"let it run; or stop it first with `airflow-ckpt stop {checkpoint}`.",
    )
