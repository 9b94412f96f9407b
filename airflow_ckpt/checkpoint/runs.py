"""The run records beside a checkpoint, as Airflow and the command line see them."""

from __future__ import annotations

from ckpt_stream import run_record
from ckpt_stream.errors import DriverAlive
from ckpt_stream.files import ReadableFiles
from ckpt_stream.look_again import read_listed
from ckpt_stream.run_record import LIVE, RUNS, RunRecord, path_of


def run_names(files: ReadableFiles) -> list[str]:
    """The runs of a checkpoint, oldest first."""
    return run_record.run_names(files.names(RUNS))


def read_run(files: ReadableFiles, name: str) -> RunRecord | None:
    """One of the runs that `run_names` has named; None if it was deleted since."""
    return read_listed(files, path_of(name), RunRecord.from_json)


#: How far back a live run is looked for: behind it there may be runs that were refused because it lives.
LOOK_BACK = 20


def current_run(files: ReadableFiles, names: list[str] | None = None) -> RunRecord | None:
    """The youngest run, unless it was refused because an older one lives; None when the checkpoint has none.

    The youngest is the last one of `names`, by default the one whose host's clock says so.
    A run that was not refused has found all older ones dead, though a killed one's file says RUNNING for good. Raises
    Unreadable where a run's file is there and does not tell how the run is.
    """
    newest: RunRecord | None = None
    for name in reversed((run_names(files) if names is None else names)[-LOOK_BACK:]):
        run = read_run(files, name)
        if run is None:
            continue
        if run.state in LIVE:
            return run
        newest = newest or run
        if run.failure is None or run.failure.error != DriverAlive.__name__:
            break
    return newest
