"""Starts a stream, or attaches to its driver if it is running."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.steps import Done, Event, Step, Wait
from airflow_ckpt.streams.goal import REACHED
from airflow_ckpt.supervision.control import StreamControl

WAIT_FOR = ("nothing", "started", "first_batch")


class SparkStreamSubmitOperator(StreamOperator):
    """Submit a stream; if it is already running, attach to its driver.

    The driver is detached and continues after this task. Submitting a stream that has failed begins a new restart budget; a
    second submit in the same DAG run (a retry, a cleared task) does not.

    :param wait_for: when the task is done: `nothing` (after the submit), `started` (the driver is RUNNING; default), or
        `first_batch` (the run has committed a batch)
    """

    def __init__(self, *, wait_for: str = "started", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if wait_for not in WAIT_FOR:
            raise BadArgument(f"wait_for={wait_for!r} is none of {', '.join(WAIT_FOR)}.")
        self.wait_for = wait_for

    def begin(self, context: Any, control: StreamControl) -> Step:
        status = control.submit(submission=self.submission(context), allow=self.allow)
        self.publish(context, status)
        if self.wait_for == "nothing":
            return Done(status.as_dict())
        return Wait(self.goal(started=True), "has_started")

    def has_started(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] != REACHED:
            raise self.failure(control, event)
        if self.wait_for == "first_batch":
            return Wait(self.goal(batches=1), "has_batch")
        return Done(event["status"])

    def has_batch(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] != REACHED:
            raise self.failure(control, event)
        return Done(event["status"])
