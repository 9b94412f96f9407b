"""Resumes a stream that is FAILED, LOST or STALLED; a healthy stream is not changed."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.steps import Done, Event, Pause, Step, Wait
from airflow_ckpt.streams.goal import OUT_OF_REACH, REACHED
from airflow_ckpt.supervision.control import StreamControl


class SparkStreamResumeOperator(StreamOperator):
    """Resume a stream from its checkpoint, if preflight and the restart strategy allow it.

    A stream that is healthy or was stopped on purpose is not changed. A broken stream is restarted after the strategy's pause;
    then the task waits for the first new commit, or until no input is waiting. The task fails, and is not retried, if the
    strategy's budget is used up or no restart can help.

    :param restarts: fail if the stream breaks again after so many restarts by this task, so that the next task has the remaining
        budget; None (default): restart as often as the strategy allows
    """

    def __init__(self, *, restarts: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if restarts is not None and restarts < 1:
            raise BadArgument(f"restarts={restarts!r} must be at least 1.")
        self.restarts = restarts

    def begin(self, context: Any, control: StreamControl) -> Step:
        status = control.status()
        plan = control.plan_resume(status)
        self.log.info("%s", plan.reason)
        self.publish(context, status)
        if plan.action == "none":
            return Done({**status.as_dict(), "resumed": False})
        self.send_event(context, "failed", status.reason, status)
        if plan.action == "wait":
            return Pause(plan.seconds, "pause_is_over")
        return self.pause_is_over(context, control, {})

    def pause_is_over(self, context: Any, control: StreamControl, event: Event) -> Step:
        look = control.look_before_start()
        status, plan = look.status, control.plan_resume(look.status)
        if plan.action == "none":
            self.log.info("%s", plan.reason)
            return Done({**status.as_dict(), "resumed": False})
        if plan.action == "wait":
            # Another task or a user has restarted the stream, and it broke again.
            return Pause(plan.seconds, "pause_is_over")
        batch = status.batch if status.batch is not None else -1
        started = control.resume(look, allow=self.allow)
        self.log.info("%s: %s", plan.reason, started.line())
        return Wait(self.goal(after_batch=batch, started=True), "has_moved")

    def has_moved(self, context: Any, control: StreamControl, event: Event) -> Step:
        if event["outcome"] == OUT_OF_REACH:
            # The stream broke again before its first commit: the strategy decides whether it is restarted again.
            self.log.warning("%s", event["reason"])
            if self.restarts is not None and control.restarts_by_me() >= self.restarts:
                raise self.failure(control, event)
            return self.begin(context, control)
        if event["outcome"] != REACHED:
            raise self.failure(control, event)
        self.send_event(context, "resumed", str(event["reason"]))
        return Done({**event["status"], "resumed": True})
