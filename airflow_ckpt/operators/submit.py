"""Starts a stream, or attaches to the one that runs."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.operators.base import Done, Event, Step, StreamOperator, Wait
from airflow_ckpt.streams.control import StreamControl
from airflow_ckpt.streams.goal import REACHED

WAIT_FOR = ("nothing", "started", "first_batch")


class SparkStreamSubmitOperator(StreamOperator):
    """Submit a stream; one that already runs is left alone and attached to.

    The driver is detached: it goes on when this task is over. Submitting a stream that has failed begins a new restart
    budget; doing it again within the same DAG run (a retry, a cleared task) does not.

    :param wait_for: `nothing`, `started` (the driver says RUNNING; default), or `first_batch` (the run has committed one)
    """

    def __init__(self, *, wait_for: str = "started", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if wait_for not in WAIT_FOR:
            raise CkptError(f"wait_for={wait_for!r} is none of {', '.join(WAIT_FOR)}.")
        self.wait_for = wait_for

    def begin(self, context: Any, control: StreamControl) -> Step:
        status = control.submit(submission=self.submission(context), allow=self.allow)
        self._show(context, status)
        if self.wait_for == "nothing":
            return Done(status.as_dict())
        return Wait(self.goal(started=True), "has_started")

    def has_started(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] != REACHED:
            raise self.fail(control, event)
        if self.wait_for == "first_batch":
            return Wait(self.goal(batches=1), "has_batch")
        return Done(event["status"])

    def has_batch(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] != REACHED:
            raise self.fail(control, event)
        return Done(event["status"])
