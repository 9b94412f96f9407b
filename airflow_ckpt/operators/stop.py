"""Stops a stream after its current batch, and kills its driver if that takes too long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.steps import Done, Event, Step, Wait
from airflow_ckpt.streams.durations import Duration, to_timedelta
from airflow_ckpt.streams.goal import TIMEOUT
from airflow_ckpt.streams.status import ENDED_WELL, HEALTHY, STALLED
from airflow_ckpt.supervision.control import StreamControl


class SparkStreamStopOperator(StreamOperator):
    """Stop a stream gracefully: its current batch is committed, no new batch begins, and only a new submit starts it again.

    A stream that is FAILED or LOST, or waits for its restart, is stopped at once: it is not restarted.

    :param kill_after: kill the driver if it has not ended after this time, and at once if the stream is STALLED; None: do not
        kill it
    :param reason: written to the driver's log and to the run record
    """

    def __init__(self, *, kill_after: Duration | None = timedelta(minutes=5), reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kill_after = None if kill_after is None else to_timedelta(kill_after, "kill_after")
        self.reason = reason
        self.timeout = self.kill_after or self.timeout

    def begin(self, context: Any, control: StreamControl) -> Step:
        status = control.request_stop(self.reason or f"requested by {control.by}")
        self.publish(context, status)
        if status.state not in (*HEALTHY, STALLED):
            self.log.info("no driver is running: %s", status.line())
            return Done(status.as_dict())
        return Wait(self.goal(ended=True), "has_ended")

    def has_ended(self, context: Any, control: StreamControl, event: Event) -> Step:
        status = control.status()
        late = event["outcome"] == TIMEOUT
        lives = status.state == STALLED or (late and status.state in HEALTHY)
        if lives and self.kill_after is not None:
            why = f"did not end within {self.kill_after}" if late else f"is STALLED ({status.reason})"
            self.log.warning("killing the driver: it %s", why)
            control.kill()
            status = control.status()
        if status.state not in ENDED_WELL:
            raise self.failure(control, {**event, "reason": status.line()})
        self.publish(context, status)
        return Done(status.as_dict())
