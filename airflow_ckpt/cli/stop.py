"""`airflow-ckpt stop`: ask a running stream to end after the batch it is working on, and a broken one to stay ended."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import Result, output_for
from airflow_ckpt.cli.streams import StreamArgument, WebHdfs, control_for, telling_of_storage


@telling_of_storage
def stop(
    stream: StreamArgument,
    reason: Annotated[str, typer.Option(help="Why, for the log.")] = "",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: do not wait.")] = 60.0,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Stop a stream gracefully: its current batch commits, no new one starts, and only a new submit starts it again.

    Exit code 1 if it still runs.
    """
    from airflow_ckpt.streams.status import BROKEN, HEALTHY, STALLED

    control = control_for(stream, None, None, webhdfs)
    # How much input waits is of no interest here, and Kafka may be away.
    control.sources = replace(control.sources, kafka=None)
    before = control.status()
    found = control.request_stop(reason)
    deadline = time.monotonic() + wait
    while (lives := found.state in (*HEALTHY, STALLED)) and time.monotonic() < deadline:
        time.sleep(0.2)
        found = control.status()
    asked = before.state in (*HEALTHY, *BROKEN)
    value = {"run": found.run, "state": found.state, "before": before.state, "requested": asked, "reason": found.reason}
    output_for(as_json).result(value, lambda v: _in_words(v, lives, control.stream.checkpoint))
    raise typer.Exit(1 if wait and lives else 0)


def _in_words(value: Result, lives: bool, checkpoint: str) -> Text:
    # As Text: a reason with brackets is not markup.
    return Text("\n".join(_lines(value, lives, checkpoint)))


def _lines(value: Result, lives: bool, checkpoint: str) -> list[str]:
    what = f"run {value['run']}" if value["run"] else "the stream"
    line = f"{what} is {value['state']}" + (f": {value['reason']}" if value["reason"] else "")
    if not value["requested"]:
        return [f"nothing to stop: {line}"]
    if lives:
        return [line, "the request holds; the driver ends after its current batch"]
    if value["before"] in ("FAILED", "LOST"):
        return [line, f"only a new submit starts it again, or `airflow-ckpt resume {checkpoint} --new-budget`"]
    return [line]
