"""`airflow-ckpt stop`: end a running stream after its current batch, and prevent the restart of a broken one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from airflow_ckpt.cli.kafka_options import AsJson
from airflow_ckpt.cli.output import Output, Result, output_for
from airflow_ckpt.cli.streams import StreamArgument, WebHdfs, control_to_start, with_storage_errors
from ckpt_stream.protocol.deadline import Deadline

if TYPE_CHECKING:
    from airflow_ckpt.streams.status import StreamStatus

SCHEDULED = "the next run of a DAG that submits the stream starts it again: pause a DAG that has a schedule"
#: How many times the status is read, five times a second, until a driver has noticed that a request is withdrawn.
LOOKS_UNTIL_NOTICED = 10


@with_storage_errors
def stop(
    stream: StreamArgument,
    reason: Annotated[str, typer.Option(help="The reason, for the driver's log and the run record.")] = "",
    wait: Annotated[float, typer.Option(help="Seconds to wait for the end; 0: do not wait.")] = 60.0,
    cancel: Annotated[bool, typer.Option("--cancel", help="Withdraw a stop that the driver has not begun.")] = False,
    webhdfs: WebHdfs = None,
    as_json: AsJson = False,
) -> None:
    """Stop a stream gracefully: its current batch is committed, no new batch begins, and only a new submit starts it again.

    Exit code 1 if it is still running after the wait; with --cancel, if its driver is already stopping.
    """
    from airflow_ckpt.streams.status import BROKEN, HEALTHY, STALLED

    control, refusal = control_to_start(stream, None, None, webhdfs)
    # The lag does not matter here, and Kafka may not answer.
    control.access = replace(control.access, kafka=None)
    before = control.status()
    if cancel:
        _cancel(control, before, output_for(as_json))
        return
    found = control.request_stop(reason)
    deadline = Deadline.after(wait)
    while (is_running := found.state in (*HEALTHY, STALLED)) and not deadline.passed:
        time.sleep(0.2)
        found = control.status()
    asked = before.state in (*HEALTHY, *BROKEN)
    value = {"run": found.run, "state": found.state, "before": before.state, "requested": asked, "reason": found.reason}
    again = f"`airflow-ckpt resume {control.stream.checkpoint} --new-budget`" if refusal is None else str(refusal)
    # As Text: a reason with brackets is not markup.
    output_for(as_json).result(value, lambda v: Text("\n".join(_lines(v, is_running, again))))
    raise typer.Exit(1 if wait and is_running else 0)


def _cancel(control: Any, before: StreamStatus, out: Output) -> None:
    """Withdraw a stop request. Exit code 1 if the driver is already stopping."""
    from airflow_ckpt.streams.status import HEALTHY

    found = control.withdraw_stop()
    for _ in range(LOOKS_UNTIL_NOTICED):
        # A driver that begins to stop at this moment notices that the request is withdrawn, and continues.
        if not found.stopping:
            break
        time.sleep(0.2)
        found = control.status()
    value = {
        "run": found.run, "state": found.state, "before": before.state, "withdrawn": before.stop is not None,
        "stopping": found.stopping, "reason": found.reason,
    }  # fmt: skip
    if found.stopping:
        message = "too late: its driver is stopping and ends after its current batch; a submit starts the stream again"
    elif before.stop is None:
        message = "there is no stop request to withdraw"
    elif found.state in HEALTHY:
        message = f"the stop that {before.stop.get('by')} requested is withdrawn: the stream continues"
    else:
        message = f"the stop that {before.stop.get('by')} requested is withdrawn: a supervise or resume task restarts the stream"
    out.result(value, lambda v: Text(f"{_state(v)}\n{message}"))
    raise typer.Exit(1 if found.stopping else 0)


def _state(value: Result) -> str:
    what = f"run {value['run']}" if value["run"] else "the stream"
    return f"{what} is {value['state']}" + (f": {value['reason']}" if value["reason"] else "")


def _lines(value: Result, is_running: bool, again: str) -> list[str]:
    line = _state(value)
    if not value["requested"]:
        return [f"there is nothing to stop: {line}"]
    if is_running:
        return [line, "the stop is requested; the driver ends after its current batch", SCHEDULED]
    if value["before"] in ("FAILED", "LOST"):
        return [line, f"only a new submit starts it again: {again}", SCHEDULED]
    return [line, SCHEDULED]
