"""Runs a stream and keeps it running, until a goal is reached or without an end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_ckpt.exceptions import BadArgument, PreflightRefused, StillAlive
from airflow_ckpt.operators.base import StreamOperator
from airflow_ckpt.operators.steps import Done, Event, Pause, Step, Wait, moment_in
from airflow_ckpt.streams.goal import REACHED, TIMEOUT, Goal
from airflow_ckpt.streams.status import BROKEN, ENDED_WELL, NEW, StreamStatus
from airflow_ckpt.supervision.control import StreamControl

WHEN_DONE = ("leave", "stop")
#: A restart may be prevented for a while: Kafka or the checkpoint's storage does not answer, or the end of the former driver is
#: not confirmed. For so long after the failure it is tried again, which uses nothing of the restart budget.
OUTAGE, OUTAGE_POLL_SECONDS = timedelta(minutes=15), 30.0


class SparkStreamSuperviseOperator(StreamOperator):
    """Submit a stream or attach to its driver, watch it, and resume it as the restart strategy allows.

    The stream continues when a worker, the triggerer or the scheduler restarts; the task then attaches to it again.

    :param until: when the task is done: `"drained"` (all input that existed when the task began is committed), `"finished"` (the
        stream ends by itself), a timedelta, a batch number, offsets `{topic: {partition: offset}}`, or None (never)
    :param start: False: do not start the stream; the task fails if the stream was stopped on purpose, has finished or was never
        started
    :param when_done: what happens to the stream when `until` is reached: `leave` it running (default), or `stop` it
    """

    def __init__(
        self,
        *,
        until: str | timedelta | int | Mapping[str, Mapping[str, int]] | None = None,
        start: bool = True,
        when_done: str = "leave",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if when_done not in WHEN_DONE:
            raise BadArgument(f"when_done={when_done!r} is none of {', '.join(WHEN_DONE)}.")
        if isinstance(until, str) and until not in ("drained", "finished"):
            raise BadArgument(f'until={until!r} is neither "drained", "finished", a timedelta, a batch nor offsets.')
        self.until, self.start, self.when_done = until, start, when_done

    def _goal_to_reach(self, control: StreamControl) -> Goal:
        until = self.until
        if until == "drained":
            return self.goal(drained=True, ends=control.source_ends())
        if until == "finished":
            return self.goal(ended=True)
        if isinstance(until, timedelta):
            return self.goal(until=moment_in(until.total_seconds()), never=True)
        if isinstance(until, Mapping):
            return self.goal(offsets={t: {str(p): o for p, o in ps.items()} for t, ps in until.items()})
        if isinstance(until, int):
            return self.goal(batch=until)
        return self.goal(ended=True)

    def begin(self, context: Any, control: StreamControl) -> Step:
        goal = self._goal_to_reach(control)
        if not self.start and (found := control.status()).state in (*ENDED_WELL, NEW):
            raise AirflowFailException(
                f"{found.line()}: it was stopped on purpose, has finished or was never started, and with start=False this "
                "task does not start it. Start it with SparkStreamSubmitOperator, or let this task start it (start=True)."
            )
        status = control.submit(submission=self.submission(context), allow=self.allow)
        self.publish(context, status)
        return Wait(goal, "look_again")

    def look_again(self, context: Any, control: StreamControl, event: Event) -> Step:
        """Continue when the goal is reached or the stream is broken."""
        if event["outcome"] == REACHED:
            return self._finish(control, event)
        status = control.status()
        if event["outcome"] == TIMEOUT or status.state not in (*BROKEN, "STARTING", "RUNNING", "IDLE"):
            raise self.failure(control, event)
        if status.state not in BROKEN:
            return Wait(Goal.from_dict(event["goal"]), "look_again")
        self.send_event(context, "failed", status.reason, status)
        plan = control.plan_resume(status)
        self.log.info("%s: %s", status.line(), plan.reason)
        self._remember(context, event["goal"])
        if plan.action == "wait":
            return Pause(plan.seconds, "restart")
        return self.restart(context, control, event)

    def restart(self, context: Any, control: StreamControl, event: Event) -> Step:
        """The pause is over: restart the stream, unless another task or a user has restarted it."""
        look = control.look_before_start()
        status = look.status
        if status.state in BROKEN:
            plan = control.plan_resume(status)
            if plan.action == "wait":
                # Another task or a user has restarted the stream, and it broke again.
                return Pause(plan.seconds, "restart")
            try:
                status = control.resume(look, allow=self.allow)
            except (PreflightRefused, StillAlive) as e:
                temporary = isinstance(e, StillAlive) or e.temporary
                if not temporary or _broken_for(status) > OUTAGE:
                    raise
                self.log.warning("%s", e)
                return Pause(OUTAGE_POLL_SECONDS, "restart")
            if status.state not in ENDED_WELL:  # otherwise a stop was requested before the restart
                self.send_event(context, "resumed", status.line(), status)
        self.publish(context, status)
        return Wait(self._remembered(context, control), "look_again")

    def _remember(self, context: Any, goal: Mapping[str, Any]) -> None:
        """Keep the goal for the time after a pause, because its times were fixed at the start of the task."""
        self._goal = goal
        if (store := context.get("task_state_store")) is not None:
            store.set("ckpt_goal", dict(goal))

    def _remembered(self, context: Any, control: StreamControl) -> Goal:
        store = context.get("task_state_store")
        goal = (store.get("ckpt_goal") if store is not None else None) or getattr(self, "_goal", None)
        return Goal.from_dict(goal) if goal else self._goal_to_reach(control)

    def _finish(self, control: StreamControl, event: Event) -> Step:
        if self.when_done == "stop" and (event["status"] or {}).get("state") not in ENDED_WELL:
            control.request_stop("supervision has reached its goal")
            return Wait(Goal(ended=True), "has_stopped")
        return Done(event["status"])

    def has_stopped(self, context: Any, control: StreamControl, event: Event) -> Step:
        if (event["status"] or {}).get("state") not in ENDED_WELL:
            raise self.failure(control, event)
        return Done(event["status"])


def _broken_for(status: StreamStatus) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(status.broken_since or status.time)
