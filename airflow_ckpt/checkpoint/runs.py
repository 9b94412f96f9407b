"""Reads the run records beside a checkpoint, for Airflow and the command line."""

from __future__ import annotations

from ckpt_stream.errors import DriverAlive
from ckpt_stream.protocol.run_files import run_record
from ckpt_stream.protocol.run_files.record_files import RUNS
from ckpt_stream.protocol.run_files.run_record import NOT_ENDED, RunRecord, path_of
from ckpt_stream.protocol.run_files.unfinished_files import read_when_whole
from ckpt_stream.protocol.storage import ReadableFiles


def run_names(files: ReadableFiles) -> list[str]:
    """The runs of a checkpoint, oldest first."""
    return run_record.runs_in(files.names(RUNS))


def read_run(files: ReadableFiles, name: str) -> RunRecord | None:
    """Read one of the runs in the result of `run_names`; None if it was deleted since."""
    return read_when_whole(files, path_of(name), RunRecord.from_json)


#: How many runs are read to find the live run: newer runs may have been refused because of it.
LOOK_BACK = 20


def current_run(files: ReadableFiles, names: list[str] | None = None) -> RunRecord | None:
    """The newest run, or the older live run because of which it was refused; None if the checkpoint has no run.

    The newest run is the last of `names`, by default in the order of their hosts' clocks. A run that was not refused has found
    all older runs dead, even if the record of a killed run still has the state RUNNING. Raises Unreadable if a run record exists
    but cannot be read.
    """
    newest: RunRecord | None = None
    for name in reversed((run_names(files) if names is None else names)[-LOOK_BACK:]):
        run = read_run(files, name)
        if run is None:
            continue
        if run.state in NOT_ENDED:
            return run
        newest = newest or run
        if run.failure is None or run.failure.error != DriverAlive.__name__:
            break
    return newest
