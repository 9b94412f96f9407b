"""`airflow-ckpt status` and `airflow-ckpt resume`: show a stream's status, and resume it, without Airflow's UI."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from airflow_ckpt.cli.kafka_options import AsJson, Bootstrap, KafkaConfig
from airflow_ckpt.cli.output import Result, output_for
from airflow_ckpt.cli.streams import StreamArgument, WebHdfs, control_to_look, control_to_start, with_storage_errors
from airflow_ckpt.exceptions import ResumeFailed
from ckpt_stream.protocol.deadline import Deadline

COLOURS = {"RUNNING": "green", "IDLE": "green", "STARTING": "cyan", "STOPPED": "dim", "FINISHED": "dim", "NEW": "dim"}


@with_storage_errors
def status(
    stream: StreamArgument,
    bootstrap: Bootstrap = None,
    kafka_config: KafkaConfig = None,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Show a stream's state, batch, lag per partition and driver. Exit code 1 if it is FAILED, LOST or STALLED."""
    from airflow_ckpt.streams.status import BROKEN

    control = control_to_look(stream, bootstrap, kafka_config, webhdfs)
    found = control.status(lag_seconds=True)
    output_for(as_json).result(found.as_dict(), _as_table)
    raise typer.Exit(1 if found.state in BROKEN else 0)


def _as_table(value: Result) -> Group:
    from airflow_ckpt.streams.durations import in_words

    state = value["state"]
    table = Table(title=f"stream {value['stream']}", show_header=False)
    rows: list[tuple[str, Any]] = [
        ("state", Text(state, COLOURS.get(state, "bold red"))),
        ("reason", value["reason"]),
        ("stop", f"requested by {value['stop'].get('by')} at {value['stop'].get('time')}" if value["stop"] else None),
        ("run", value["run"]),
        ("committed batch", value["batch"]),
        ("batch in doubt", value["in_doubt"]),
        ("last commit", f"{in_words(value['age_seconds'])} ago" if value["age_seconds"] is not None else None),
        ("rows per second", value["rows_per_second"]),
        ("lag, records", value["lag_records"]),
        ("lag, oldest record", in_words(value["lag_seconds"]) if value["lag_seconds"] else None),
        ("Spark UI", value["ui"]),
        ("log", value["log"]),
    ]
    for name, text in rows:
        if text not in (None, ""):
            table.add_row(name, text if isinstance(text, Text) else str(text))
    parts = Table()
    for column in ("topic", "partition", "committed", "end", "lag", "oldest waits"):
        parts.add_column(column, justify="left" if column == "topic" else "right")
    for p in value["partitions"]:
        waits = in_words(p["seconds"]) if p["seconds"] else ""
        cells = (p["topic"], p["partition"], p["committed"], p["end"], p["records"], waits)
        parts.add_row(*("" if c is None else str(c) for c in cells))
    return Group(table, parts) if value["partitions"] else Group(table)


@with_storage_errors
def resume(
    stream: StreamArgument,
    bootstrap: Bootstrap = None,
    kafka_config: KafkaConfig = None,
    webhdfs: WebHdfs = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="A kind of preflight finding that does not prevent the start.")
    ] = None,
    new_budget: Annotated[
        bool, typer.Option("--new-budget", help="Start the stream with a new restart budget.")
    ] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the driver to run; 0: do not wait.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Resume a stream that is FAILED, LOST or STALLED. A healthy stream is not changed.

    A stream that was stopped is started only with --new-budget.
    """
    from airflow_ckpt.streams.status import BROKEN, STOPPED

    control, refusal = control_to_start(stream, bootstrap, kafka_config, webhdfs)
    out = output_for(as_json)
    look = control.look_before_start()
    found = look.status
    if refusal and found.state in (*BROKEN, STOPPED):
        # Checked first: a driver that could not be started again must not be ended.
        raise refusal
    if new_budget and found.state in (*BROKEN, STOPPED):
        found = control.submit(allow=tuple(allow or ()))
    else:
        plan = control.plan_resume(found)
        out.step(plan.reason)
        look = control.when_due(look)
        found = look.status
        if found.state in BROKEN:
            found = control.resume(look, allow=tuple(allow or ()))
    deadline = Deadline.after(wait)
    while found.state == "STARTING" and not deadline.passed:
        time.sleep(0.5)
        found = control.status()
    if found.state in BROKEN:
        raise ResumeFailed(f"{found.line()}\n{control.log_tail(20)}")
    out.result(found.as_dict(), _as_table)
