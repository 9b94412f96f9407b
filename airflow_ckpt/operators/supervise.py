"""Runs a stream and keeps it running, until something is reached or for ever."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.operators.base import Done, Event, Pause, Step, StreamOperator, Wait, _moment
from airflow_ckpt.streams.control import StillAlive, StreamControl
from airflow_ckpt.streams.goal import REACHED, TIMEOUT, Goal
from airflow_ckpt.streams.preflight import PreflightRefused
from airflow_ckpt.streams.status import BROKEN, ENDED_WELL, NEW, StreamStatus

WHEN_DONE = ("leave", "stop")
#: So long after a failure a restart that is prevented for the moment (Kafka or the checkpoint is away, the former driver's
#: end is not confirmed) is tried again, at no cost.
OUTAGE, OUTAGE_POLL_SECONDS = timedelta(minutes=15), 30.0


class SparkStreamSuperviseOperator(StreamOperator):
    """Submit or attach, watch, and resume as the restart strategy allows.

    Neither a worker nor a triggerer nor a scheduler that restarts disturbs the stream: it is attached to again.

    :param until: `"drained"` (all input that was there when the task began is committed), `"finished"` (the stream ends by
        itself), a timedelta, a batch number, offsets `{topic: {partition: offset}}`, or None: for ever
    :param start: False: only look after a stream that is meant to run; one that was stopped on purpose, has finished or was
        never started is a failure
    :param when_done: `leave` the stream running then (default), or `stop` it
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
            raise CkptError(f"when_done={when_done!r} is none of {', '.join(WHEN_DONE)}.")
        if isinstance(until, str) and until not in ("drained", "finished"):
            raise CkptError(f'until={until!r} is neither "drained", "finished", a timedelta, a batch nor offsets.')
        self.until, self.start, self.when_done = until, start, when_done

    def _target(self, control: StreamControl) -> Goal:
        until = self.until
        if until == "drained":
            return self.goal(drained=True, ends=control.source_ends())
        if until == "finished":
            return self.goal(ended=True)
        if isinstance(until, timedelta):
            return self.goal(until=_moment(until.total_seconds()), never=True)
        if isinstance(until, Mapping):
            return self.goal(offsets={t: {str(p): o for p, o in ps.items()} for t, ps in until.items()})
        if isinstance(until, int):
            return self.goal(batch=until)
        return self.goal(ended=True)

    def begin(self, context: Any, control: StreamControl) -> Step:
        target = self._target(control)
        if not self.start and (found := control.status()).state in (*ENDED_WELL, NEW):
            raise AirflowFailException(
                f"{found.line()}: it was ended on purpose or never started, and this task starts nothing"
            )
        status = control.submit(submission=self.submission(context), allow=self.allow)
        self._show(context, status)
        return Wait(target, "look_again")

    def look_again(self, context: Any, control: StreamControl, event: Event) -> Step:
        """The goal is reached, or the stream needs help."""
        if event["outcome"] == REACHED:
            return self._finish(control, event)
        status = control.status()
        if event["outcome"] == TIMEOUT or status.state not in (*BROKEN, "STARTING", "RUNNING", "IDLE"):
            raise self.fail(control, event)
        if status.state not in BROKEN:
            return Wait(Goal.from_dict(event["goal"]), "look_again")
        self._tell(context, "failed", status.reason, status)
        plan = control.plan_resume(status)
        self.log.info("%s: %s", status.line(), plan.reason)
        self._remember(context, event["goal"])
        if plan.action == "wait":
            return Pause(plan.seconds, "restart")
        return self.restart(context, control, event)

    def restart(self, context: Any, control: StreamControl, event: Event) -> Step:
        """The pause is over: restart, unless another task or a user has."""
        status = control.status()
        if status.state in BROKEN:
            plan = control.plan_resume(status)
            if plan.action == "wait":
                # Another task or a user has restarted it, and it broke again.
                return Pause(plan.seconds, "restart")
            try:
                status = control.resume(status, allow=self.allow)
            except (PreflightRefused, StillAlive) as e:
                passing = isinstance(e, StillAlive) or e.may_pass
                if not passing or _broken_for(status) > OUTAGE:
                    raise
                self.log.warning("%s", e)
                return Pause(OUTAGE_POLL_SECONDS, "restart")
            if status.state not in ENDED_WELL:  # a stop that was requested meanwhile
                self._tell(context, "resumed", status.line(), status)
        self._show(context, status)
        return Wait(self._recall(context, control), "look_again")

    def _remember(self, context: Any, goal: Mapping[str, Any]) -> None:
        """A moment that was promised at the start outlives the pauses in between."""
        self._goal = goal
        if (store := context.get("task_state_store")) is not None:
            store.set("ckpt_goal", dict(goal))

    def _recall(self, context: Any, control: StreamControl) -> Goal:
        store = context.get("task_state_store")
        goal = (store.get("ckpt_goal") if store is not None else None) or getattr(self, "_goal", None)
        return Goal.from_dict(goal) if goal else self._target(control)

    def _finish(self, control: StreamControl, event: Event) -> Step:
        if self.when_done == "stop" and (event["status"] or {}).get("state") not in ENDED_WELL:
            control.request_stop("supervision has reached its goal")
            return Wait(Goal(ended=True), "has_stopped")
        return Done(event["status"])

    def has_stopped(self, context: Any, control: StreamControl, event: Event) -> Step:
        if (event["status"] or {}).get("state") not in ENDED_WELL:
            raise self.fail(control, event)
        return Done(event["status"])


def _broken_for(status: StreamStatus) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(status.broken_since or status.time)
