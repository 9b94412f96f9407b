"""`airflow-ckpt stop`: ask a running stream to end after the batch it is working on, and a broken one to stay ended."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import Output, Result, output_for
from airflow_ckpt.cli.streams import StreamArgument, WebHdfs, control_to_start, telling_of_storage

if TYPE_CHECKING:
    from airflow_ckpt.streams.status import StreamStatus

SCHEDULED = "the next run of a DAG that submits it starts it again: pause a DAG that is scheduled"
#: Five looks a second: as long as a driver takes to see that a request is withdrawn.
TAKE_UP_LOOKS = 10


@telling_of_storage
def stop(
    stream: StreamArgument,
    reason: Annotated[str, typer.Option(help="Why, for the log.")] = "",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: do not wait.")] = 60.0,
    cancel: Annotated[bool, typer.Option("--cancel", help="Withdraw a stop that is not obeyed yet.")] = False,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Stop a stream gracefully: its current batch commits, no new one starts, and only a new submit starts it again.

    Exit code 1 if it still runs; with --cancel, if its driver has taken up the stop already.
    """
    from airflow_ckpt.streams.status import BROKEN, HEALTHY, STALLED

    control, missing = control_to_start(stream, None, None, webhdfs)
    # How much input waits is of no interest here, and Kafka may be away.
    control.sources = replace(control.sources, kafka=None)
    before = control.status()
    if cancel:
        _cancel(control, before, output_for(as_json))
        return
    found = control.request_stop(reason)
    deadline = time.monotonic() + wait
    while (lives := found.state in (*HEALTHY, STALLED)) and time.monotonic() < deadline:
        time.sleep(0.2)
        found = control.status()
    asked = before.state in (*HEALTHY, *BROKEN)
    value = {"run": found.run, "state": found.state, "before": before.state, "requested": asked, "reason": found.reason}
    again = f"`airflow-ckpt resume {control.stream.checkpoint} --new-budget`" if missing is None else str(missing)
    # As Text: a reason with brackets is not markup.
    output_for(as_json).result(value, lambda v: Text("\n".join(_lines(v, lives, again))))
    raise typer.Exit(1 if wait and lives else 0)


def _cancel(control: Any, before: StreamStatus, out: Output) -> None:
    """Exit code 1 if the driver has taken up the request already."""
    from airflow_ckpt.streams.status import HEALTHY

    found = control.withdraw_stop()
    for _ in range(TAKE_UP_LOOKS):
        # A driver that was taking it up at this moment sees that it is withdrawn, and goes on.
        if not found.stopping:
            break
        time.sleep(0.2)
        found = control.status()
    value = {
        "run": found.run, "state": found.state, "before": before.state, "withdrawn": before.stop is not None,
        "stopping": found.stopping, "reason": found.reason,
    }  # fmt: skip
    if found.stopping:
        said = (
            "its driver has taken up the stop already, and ends after its current batch; then a submit starts it again"
        )
    elif before.stop is None:
        said = "no stop was pending: nothing is withdrawn"
    elif found.state in HEALTHY:
        said = f"the stop that {before.stop.get('by')} requested is withdrawn: the stream goes on"
    else:
        said = f"the stop that {before.stop.get('by')} requested is withdrawn: a supervision or a resume restarts the stream"
    out.result(value, lambda v: Text(f"{_state(v)}\n{said}"))
    raise typer.Exit(1 if found.stopping else 0)


def _state(value: Result) -> str:
    what = f"run {value['run']}" if value["run"] else "the stream"
    return f"{what} is {value['state']}" + (f": {value['reason']}" if value["reason"] else "")


def _lines(value: Result, lives: bool, again: str) -> list[str]:
    line = _state(value)
    if not value["requested"]:
        return [f"nothing to stop: {line}"]
    if lives:
        return [line, "the request holds; the driver ends after its current batch", SCHEDULED]
    if value["before"] in ("FAILED", "LOST"):
        return [line, f"only a new submit starts it again: {again}", SCHEDULED]
    return [line, SCHEDULED]
