"""Stops a stream: after its batch, and by force if that takes too long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow_ckpt.operators.base import Done, Event, Step, StreamOperator, Wait
from airflow_ckpt.streams.control import StreamControl
from airflow_ckpt.streams.duration import Duration, to_timedelta
from airflow_ckpt.streams.goal import TIMEOUT
from airflow_ckpt.streams.status import ENDED_WELL, HEALTHY, STALLED


class SparkStreamStopOperator(StreamOperator):
    """Stop a stream gracefully: its current batch commits, no new one starts, and only a new submit starts it again.

    One that is FAILED or LOST, or waits for its restart, counts as stopped from then on.

    :param kill_after: end the driver by force if it has not ended by itself, one that is STALLED at once; None: never
    :param reason: for the log of the driver and the run record
    """

    def __init__(self, *, kill_after: Duration | None = timedelta(minutes=5), reason: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kill_after = None if kill_after is None else to_timedelta(kill_after, "kill_after")
        self.reason = reason
        self.timeout = self.kill_after or self.timeout

    def begin(self, context: Any, control: StreamControl) -> Step:
        status = control.request_stop(self.reason or f"{control.by} asks for it")
        self._show(context, status)
        if status.state not in (*HEALTHY, STALLED):
            self.log.info("there is no driver to wait for: %s", status.line())
            return Done(status.as_dict())
        return Wait(self.goal(ended=True), "has_ended")

    def has_ended(self, context: Any, control: StreamControl, event: Event) -> Step:
        status = control.status()
        late = event["outcome"] == TIMEOUT
        lives = status.state == STALLED or (late and status.state in HEALTHY)
        if lives and self.kill_after is not None:
            why = f"did not end within {self.kill_after}" if late else f"is STALLED ({status.reason})"
            self.log.warning("the driver %s: it is killed", why)
            control.kill()
            status = control.status()
        if status.state not in ENDED_WELL:
            raise self.fail(control, {**event, "reason": status.line()})
        self._show(context, status)
        return Done(status.as_dict())
