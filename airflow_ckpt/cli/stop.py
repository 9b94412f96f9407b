"""`airflow-ckpt stop`: ask a running stream to end after the batch it is working on."""

from __future__ import annotations

import getpass
import socket
import time
from typing import Annotated

import typer

from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import output_for


def stop(
    checkpoint: Annotated[str, typer.Argument(help="The stream's checkpoint folder.")],
    reason: Annotated[str, typer.Option(help="Why, for the log.")] = "",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: do not wait.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Stop a stream gracefully: its current batch commits, no new one starts. Exit code 1 if it still runs."""
    from airflow_ckpt.checkpoint.files import FsspecFiles
    from airflow_ckpt.checkpoint.runs import current_run, read_run
    from airflow_ckpt.exceptions import CkptError
    from ckpt_stream import run_record

    files = FsspecFiles(checkpoint)
    run = current_run(files)
    if run is None:
        raise CkptError(f"{checkpoint} has no run record: no stream of airflow-ckpt ever ran there. Check the path.")
    if run.state in run_record.LIVE:
        by = f"{getpass.getuser()}@{socket.gethostname()}"
        files.write(run_record.STOP, run_record.stop_request(by, reason, run.run))
        deadline = time.monotonic() + wait
        while run.state in run_record.LIVE and time.monotonic() < deadline:
            time.sleep(0.2)
            run = read_run(files, run.run) or run
    value = {"run": run.run, "state": run.state}
    output_for(as_json).result(value, lambda v: f"run {v['run']} is {v['state']}")
    raise typer.Exit(1 if wait and run.state in run_record.LIVE else 0)
