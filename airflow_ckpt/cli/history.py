"""`airflow-ckpt history`: the runs of a stream, how each ended, and why it was restarted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_ckpt.cli.inspect import Location, findings_as_text
from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import Result, output_for
from airflow_ckpt.cli.streams import WebHdfs

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
    from ckpt_stream.protocol.run_files.run_record import RunRecord

Newest = Annotated[int, typer.Option("--runs", min=1, help="The number of newest runs to show.")]
Findings = list[dict[str, Any]]


def history(checkpoint: Location, runs: Newest = 20, webhdfs: WebHdfs = None, as_json: AsJson = False) -> None:
    """Show a stream's runs and restarts, oldest first. Exit code 1 if one of their files cannot be read."""
    from airflow_ckpt.checkpoint.locations import open_files, readable
    from airflow_ckpt.checkpoint.runs import run_names
    from airflow_ckpt.exceptions import NeverRan

    files = open_files(checkpoint, webhdfs)
    findings: Findings = []
    with readable(checkpoint):
        names = run_names(files)
        known = [run for name in names[-runs:] if (run := _run(files, name, findings))]
        restarts = _restarts(files, findings)
        _intent(files, findings)
    if not names:
        raise NeverRan(f"{checkpoint} has no run record: no stream of airflow-ckpt ever ran there. Check the path.")
    value = {
        "checkpoint": checkpoint,
        "total": len(names),
        "runs": [_as_dict(run) for run in known],
        "restarts": restarts,
        "findings": findings,
    }
    output_for(as_json).result(value, _as_text)
    raise typer.Exit(1 if findings else 0)


def _run(files: FsspecFiles, name: str, findings: Findings) -> RunRecord | None:
    from airflow_ckpt.checkpoint.runs import read_run
    from ckpt_stream.errors import RunRecordError
    from ckpt_stream.protocol.run_files.record_files import RUNS

    try:
        run = read_run(files, name)
        problem = ""
    except (RunRecordError, UnicodeDecodeError) as e:
        run, problem = None, str(e)
    if problem:
        findings.append(_finding("run_record", f"{RUNS}/{name}.json", problem))
    return run


def _restarts(files: FsspecFiles, findings: Findings) -> list[dict[str, Any]]:
    from ckpt_stream.errors import Damaged, Unreadable
    from ckpt_stream.protocol.run_files.restart_history import read_history

    try:
        return read_history(files)
    except (Damaged, Unreadable) as e:
        findings.append({"kind": "restart_history", "what": str(e), "helps": "", "file": e.file})
        return []


def _intent(files: FsspecFiles, findings: Findings) -> None:
    from airflow_ckpt.supervision.intent_files import read_intent
    from ckpt_stream.errors import Damaged, Unreadable

    try:
        read_intent(files)
    except (Damaged, Unreadable) as e:
        findings.append({"kind": "intent", "what": str(e), "helps": "", "file": e.file})


def _finding(kind: str, file: str, problem: str) -> dict[str, Any]:
    return {"kind": kind, "what": f"{file} cannot be read. {problem}", "helps": "", "file": file}


def _as_dict(run: RunRecord) -> dict[str, Any]:
    from dataclasses import asdict

    from ckpt_stream.protocol.run_files.run_record import NOT_ENDED

    return {
        "run": run.run,
        "stream": run.stream,
        "state": run.state,
        "started": run.history[0]["time"] if run.history else None,
        "ended": run.history[-1]["time"] if run.history and run.state not in NOT_ENDED else None,
        "heartbeat": run.heartbeat or None,
        "batches": run.totals.get("batches", 0),
        "records": run.totals.get("records", 0),
        "host": run.driver.get("host"),
        "pid": run.driver.get("pid"),
        "reconciliation": run.reconciliation or None,
        "failure": asdict(run.failure) if run.failure else None,
        "history": run.history,
    }


def _as_text(value: Result) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = [_runs_table(value), _states_table(value["runs"])]
    if value["restarts"]:
        parts.append(_restarts_table(value["restarts"]))
    return Group(*parts, *findings_as_text(value["findings"]))


def _runs_table(value: Result) -> Table:
    shown, total = len(value["runs"]), value["total"]
    title = f"runs of {value['checkpoint']}" + (f", {shown} of {total}" if shown < total else "")
    columns = ("run", "state", "started", "ended / last heartbeat", "batches", "records", "host / pid", "failure")
    rows = (
        (
            run["run"],
            run["state"],
            _time(run["started"]),
            _end(run),
            f"{run['batches']:,}",
            f"{run['records']:,}",
            f"{run['host'] or '-'} / {run['pid'] or '-'}",
            f"{run['failure']['error']}: {run['failure']['message']}" if run["failure"] else "-",
        )
        for run in value["runs"]
    )
    return _table(title, columns, rows)


def _states_table(runs: list[dict[str, Any]]) -> Table:
    rows = (
        (
            run["run"],
            ", ".join(f"{step.get('state')} {_time(step.get('time'))}" for step in run["history"]) or "-",
            run["reconciliation"] or "-",
        )
        for run in runs
    )
    return _table("states of each run", ("run", "states", "how it began"), rows)


def _restarts_table(restarts: list[dict[str, Any]]) -> Table:
    names = ("time", "run", "after_run", "after_state", "reason")
    rows = (
        (_time(restart.get("time")), *(str(restart.get(name) or "-") for name in names[1:])) for restart in restarts
    )
    return _table("restarts", ("time", "run", "after run", "which was", "reason"), rows)


def _table(title: str, columns: tuple[str, ...], rows: Any) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # As Text, because a message with brackets is not markup.
        table.add_row(*(Text(cell) for cell in row))
    return table


def _end(run: dict[str, Any]) -> str:
    """When a run ended; without an end, the age of its last heartbeat."""
    if run["ended"]:
        return _time(run["ended"])
    if not run["heartbeat"]:
        return "-"
    from airflow_ckpt.streams.durations import in_words

    try:
        age = (datetime.now(UTC) - datetime.fromisoformat(run["heartbeat"])).total_seconds()
    except (TypeError, ValueError):
        return str(run["heartbeat"])
    return f"heartbeat {in_words(max(0.0, age))} ago"


def _time(text: Any) -> str:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError):
        return str(text or "-")
