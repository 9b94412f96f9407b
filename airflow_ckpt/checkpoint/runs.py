"""The run records beside a checkpoint, as Airflow and the command line see them."""

from __future__ import annotations

from ckpt_stream.files import ReadableFiles
from ckpt_stream.run_record import RUNS, RunRecord


def run_names(files: ReadableFiles) -> list[str]:
    """The runs of a checkpoint, oldest first. Files that Hadoop or a writer leaves beside them begin with a dot."""
    return [n.removesuffix(".json") for n in files.names(RUNS) if n.endswith(".json") and not n.startswith(".")]


def read_run(files: ReadableFiles, name: str) -> RunRecord | None:
    text = files.read(f"{RUNS}/{name}.json")
    return RunRecord.from_json(text) if text else None


def newest_run(files: ReadableFiles) -> RunRecord | None:
    """The youngest run; None when the checkpoint has none."""
    names = run_names(files)
    return read_run(files, names[-1]) if names else None
