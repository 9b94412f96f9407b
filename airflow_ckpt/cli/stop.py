"""`airflow-ckpt stop`: ask a running stream to end after the batch it is working on."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import output_for
from airflow_ckpt.cli.streams import StreamArgument, WebHdfs, declared, me


def stop(
    stream: StreamArgument,
    reason: Annotated[str, typer.Option(help="Why, for the log.")] = "",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: do not wait.")] = 60.0,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Stop a stream gracefully: its current batch commits, no new one starts. Exit code 1 if it still runs."""
    from airflow_ckpt.checkpoint.locations import open_files
    from airflow_ckpt.checkpoint.runs import current_run, read_run
    from airflow_ckpt.exceptions import CkptError
    from ckpt_stream import run_record

    found = declared(stream)
    checkpoint = found.checkpoint if found else stream
    files = open_files(checkpoint, webhdfs or (found.webhdfs if found else None))
    run = current_run(files)
    if run is None:
        raise CkptError(f"{checkpoint} has no run record: no stream of airflow-ckpt ever ran there. Check the path.")
    if run.state in run_record.LIVE:
        files.write(run_record.STOP, run_record.stop_request(me(), reason, run.run, run.token))
        deadline = time.monotonic() + wait
        while run.state in run_record.LIVE and time.monotonic() < deadline:
            time.sleep(0.2)
            run = read_run(files, run.run) or run
    value = {"run": run.run, "state": run.state}
    output_for(as_json).result(value, lambda v: f"run {v['run']} is {v['state']}")
    raise typer.Exit(1 if wait and run.state in run_record.LIVE else 0)
