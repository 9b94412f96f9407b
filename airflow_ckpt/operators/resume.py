"""Resumes a stream that failed, was lost or has stalled; leaves a healthy one alone."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.operators.base import Done, Event, Pause, Step, StreamOperator, Wait
from airflow_ckpt.streams.control import StreamControl
from airflow_ckpt.streams.goal import FAILED, REACHED


class SparkStreamResumeOperator(StreamOperator):
    """Resume a stream from its checkpoint, as preflight and restart strategy allow.

    A healthy stream, or one that was stopped on purpose, is left as it is. A broken one is restarted after the strategy's
    pause, and the task waits for the first new commit (or until no input waits). When the strategy's budget is used up, or
    no restart can help, the task fails for good.

    :param restarts: fail when the stream broke again after so many restarts by this task, and leave the rest of the budget to
        the next one; None (default): as often as the strategy allows
    """

    def __init__(self, *, restarts: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if restarts is not None and restarts < 1:
            raise CkptError(f"restarts={restarts!r} must be at least 1.")
        self.restarts = restarts

    def begin(self, context: Any, control: StreamControl) -> Step:
        status = control.status()
        plan = control.plan_resume(status)
        self.log.info("%s", plan.reason)
        self._show(context, status)
        if plan.action == "none":
            return Done({**status.as_dict(), "resumed": False})
        self._tell(context, "failed", status.reason, status)
        if plan.action == "wait":
            return Pause(plan.seconds, "pause_is_over")
        return self.pause_is_over(context, control, {})

    def pause_is_over(self, context: Any, control: StreamControl, event: Event) -> Step:
        status = control.status()
        plan = control.plan_resume(status)
        if plan.action == "none":
            self.log.info("%s", plan.reason)
            return Done({**status.as_dict(), "resumed": False})
        if plan.action == "wait":
            # Another task or a user has restarted it, and it broke again.
            return Pause(plan.seconds, "pause_is_over")
        batch = status.batch if status.batch is not None else -1
        started = control.resume(status, allow=self.allow)
        self.log.info("%s: %s", plan.reason, started.line())
        return Wait(self.goal(after_batch=batch, started=True), "has_moved")

    def has_moved(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] == FAILED:
            # It broke again before its first commit: the strategy decides whether there is another try.
            self.log.warning("%s", event["reason"])
            if self.restarts is not None and control.restarts_by_me() >= self.restarts:
                raise self.fail(control, event)
            return self.begin(context, control)
        if event["outcome"] != REACHED:
            raise self.fail(control, event)
        self._tell(context, "resumed", str(event["reason"]))
        return Done({**event["status"], "resumed": True})
