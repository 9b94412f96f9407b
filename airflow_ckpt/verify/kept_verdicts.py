"""Keeps verdicts, reports and the documents of a verification's Spark jobs beside the checkpoint, in `_ckpt/verdicts/`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.runs import current_run
from airflow_ckpt.verify.report import as_html
from airflow_ckpt.verify.scan_plan import Plan
from airflow_ckpt.verify.verdict import VIOLATED
from airflow_ckpt.verify.verified_until import record_verdict
from ckpt_stream.protocol.run_files.record_files import FOLDER
from ckpt_stream.protocol.storage import delete_old_files

VERDICTS = f"{FOLDER}/verdicts"
#: How many verdicts are kept; a watchdog writes one every few minutes.
KEPT = 100


def keep_verdict(files: FsspecFiles, document: dict[str, Any]) -> str:
    """Write a verdict, and its report with plots; returns the name of the report.

    A violation is noted first: the next verification must know of it even if the report cannot be written. Any other verdict
    moves the start of the next verification; the caller notes it after it was reported (`record_verdict`).
    """
    name = f"{VERDICTS}/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    files.write(f"{name}.json", json.dumps(document))
    if document["verdict"] == VIOLATED:
        record_verdict(files, document)
    run = current_run(files)
    files.write(f"{name}.html", as_html(document, run.batches if run else ()))
    delete_old_verdicts(files)
    return f"{name}.html"


def delete_old_verdicts(files: FsspecFiles) -> None:
    """Delete all but the newest verdicts; each has two files."""
    # A verdict is named after its time, a job's plan and result after its token, which has no T.
    verdicts = [name for name in files.names(VERDICTS) if "T" in name]
    delete_old_files(files, [f"{VERDICTS}/{name}" for name in verdicts[: -2 * KEPT]])


def result_name(token: str) -> str:
    """The file, below the checkpoint, to which the Spark job with this token writes its result."""
    return f"{VERDICTS}/{token}.result"


def keep_plan(files: FsspecFiles, token: str, plan: Plan) -> None:
    """Keep the plan until the job is done: the verdict may be reached by another worker."""
    files.write(f"{VERDICTS}/{token}.plan", plan.to_json())


def read_plan(files: FsspecFiles, token: str) -> Plan:
    return Plan.from_json(files.read(f"{VERDICTS}/{token}.plan") or "{}")


def delete_job_documents(files: FsspecFiles, token: str) -> None:
    """Delete a job's plan and result, which are not needed after the verdict."""
    for kind in ("plan", "result"):
        files.remove(f"{VERDICTS}/{token}.{kind}")
