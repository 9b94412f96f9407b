"""What all operators of a stream share: the stream, waiting with or without a triggerer, and telling people."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator, conf

from airflow_ckpt.assets import has_asset, stream_asset
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.hooks.settings import read_settings
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.links.spark_ui import SparkUiLink
from airflow_ckpt.metrics import report
from airflow_ckpt.notifications.tell import GIVEN_UP, Notify, tell
from airflow_ckpt.runners.base import Handle
from airflow_ckpt.streams.control import GivenUp, StreamControl
from airflow_ckpt.streams.duration import Duration, to_timedelta
from airflow_ckpt.streams.goal import REACHED, WAITING, Goal, Outcome, waiting_line
from airflow_ckpt.streams.preflight import PreflightRefused
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream, is_template
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger
from ckpt_stream.errors import StreamError

ON_KILL_ACTIONS = ("leave", "stop", "kill")
#: The key under which a task's view of its stream is found in the task state store.
STATUS_KEY, HISTORY_KEY = "ckpt_status", "ckpt_history"
KEEP_HISTORY = 100
#: Pauses up to this are spent in the worker, even by a task that may defer: see SETTLE_SECONDS.
SHORT_PAUSE = 5.0

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Done:
    """The operator's work is over; its value goes to XCom."""

    value: Any


@dataclass(frozen=True)
class Wait:
    """Wait until the goal is reached or out of reach, then call the method named."""

    goal: Goal
    then: str


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds, then call the method named."""

    seconds: float
    then: str


@dataclass(frozen=True)
class Job:
    """Wait until a job beside the stream has ended or its result is there, then call the method named."""

    handle: Mapping[str, Any]
    then: str
    #: A file below the checkpoint: where nobody can see the job, its result is the sign that it is over.
    result: str


Step = Done | Wait | Pause | Job


class StreamOperator(BaseOperator):
    """Base of the operators that act on a stream.

    :param stream: the stream (templated: every text in it)
    :param deferrable: wait in the triggerer instead of holding a worker slot
    :param poll_interval: time between two looks at the stream; default: `[airflow_ckpt] poll_interval`
    :param timeout: give up waiting after this time (templated); default: wait for as long as it takes
    :param on_kill_action: what becomes of the stream when this task is ended by hand: `leave` it running (default), `stop`
        it after its batch, or `kill` it
    :param allow: preflight findings to go on in spite of, by kind, such as `["data_lost"]`; each use is logged
    :param notify: notifiers to call when the stream failed, was resumed or given up, or its verification objects
    """

    template_fields: Sequence[str] = ("stream", "timeout")
    template_fields_renderers: ClassVar[dict[str, str]] = {"stream": "json"}
    operator_extra_links = (SparkUiLink(),)
    ui_color = "#e8f7fb"
    #: What notifiers are told when the task ends with a refusal.
    refused_event = GIVEN_UP

    def __init__(
        self,
        *,
        stream: Stream,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: Duration | None = None,
        timeout: Duration | None = None,
        on_kill_action: str = "leave",
        allow: Sequence[str] = (),
        notify: Notify | Sequence[Notify] = (),
        **kwargs: Any,
    ) -> None:
        if isinstance(stream, Stream) and has_asset(stream):
            kwargs["outlets"] = [*(kwargs.get("outlets") or []), stream_asset(stream)]
        super().__init__(**kwargs)
        if not isinstance(stream, Stream):
            raise CkptError(f"{type(self).__name__}(stream=...) must be a Stream, not of type {type(stream).__name__}.")
        if on_kill_action not in ON_KILL_ACTIONS:
            raise CkptError(f"on_kill_action={on_kill_action!r} is none of {', '.join(ON_KILL_ACTIONS)}.")
        self.stream = stream
        self.deferrable = deferrable
        self.poll_interval = None if poll_interval is None else to_timedelta(poll_interval, "poll_interval")
        self.timeout = timeout if timeout is None or is_template(timeout) else to_timedelta(timeout, "timeout")
        self.on_kill_action = on_kill_action
        self.allow = tuple(allow)
        self.notify = (notify,) if callable(notify) else tuple(notify)
        self._control: StreamControl | None = None
        #: The job beside the stream that this worker waits for.
        self._job: Handle | None = None

    def render_template(self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None) -> Any:
        """A stream is immutable: rendering makes a new one."""
        if isinstance(content, Stream):
            return content.rendered(
                lambda value: super(StreamOperator, self).render_template(value, context, jinja_env)
            )
        return super().render_template(content, context, jinja_env, seen_oids)

    # --- what an operator does -------------------------------------------------------------------------------------

    def begin(self, context: Any, control: StreamControl) -> Step:
        """The first step."""
        raise NotImplementedError

    def execute(self, context: Any) -> Any:
        return self._guarded(context, lambda control: self.begin(context, control))

    def on_event(self, context: Any, event: Event | None = None, **_: Any) -> Any:
        """The trigger has fired: go on with the step that the event names."""
        if event is None:
            raise CkptError("The trigger sent no event.")
        return self._guarded(context, lambda control: self._next(context, control, event))

    def _next(self, context: Any, control: StreamControl, event: Event) -> Step:
        status = event.get("status")
        if status:
            self.log.info("%s", event["reason"])
            self._show(context, StreamStatus(**{**status, "partitions": ()}))
        if event["outcome"] == "error":
            raise CkptError(f"The stream could not be looked at: {event['reason']}")
        step: Step = getattr(self, str(event["then"]))(context, control, event)
        return step

    def _guarded(self, context: Any, first: Callable[[StreamControl], Step]) -> Any:
        """Take steps until one is done. What no retry can cure fails the task for good."""
        try:
            control = self._control = StreamHook(self.stream, self._who(context)).get_conn()
            step = first(control)
            while not isinstance(step, Done):
                event = self._soon(step, control) if self.deferrable else self._wait_here(step, control)
                if event is None:
                    self._defer(step, control.by)
                else:
                    step = self._next(context, control, event)
        except GivenUp as e:
            self._tell(context, GIVEN_UP, str(e))
            raise AirflowFailException(str(e)) from e
        except (PreflightRefused, StreamError) as e:
            passing = e.may_pass if isinstance(e, PreflightRefused) else e.restart_may_help
            if not passing or _is_last_try(context):
                self._tell(context, self.refused_event, str(e))
            raise (CkptError if passing else AirflowFailException)(f"{type(e).__name__}: {e}") from e
        return step.value

    # --- waiting ---------------------------------------------------------------------------------------------------

    @property
    def _poll_seconds(self) -> float:
        return self.poll_interval.total_seconds() if self.poll_interval else read_settings().poll_interval

    def goal(self, **wanted: Any) -> Goal:
        """A goal with this operator's time limit."""
        timeout = None if self.timeout is None else to_timedelta(self.timeout, "timeout")
        limit = {"deadline": (datetime.now(UTC) + timeout).isoformat()} if timeout else {}
        return Goal(**{**limit, **wanted})

    def _soon(self, step: Wait | Pause | Job, control: StreamControl) -> Event | None:
        """What need not be waited for in the triggerer: a goal that is reached or out of reach already, a short pause."""
        if isinstance(step, Pause):
            return self._wait_here(step, control) if step.seconds <= SHORT_PAUSE else None
        if isinstance(step, Job):
            return None
        try:
            status = control.status()
        except Exception as e:
            # The trigger looks again, and tolerates some of these.
            self.log.warning("the stream could not be looked at: %s: %s", type(e).__name__, e)
            return None
        outcome = step.goal.judge(status, datetime.now(UTC))
        return None if outcome.outcome == WAITING else _ended(step, outcome, status)

    def _defer(self, step: Wait | Pause | Job, by: str) -> NoReturn:
        goal = step.goal if isinstance(step, Wait) else self.goal()
        if isinstance(step, Pause):
            goal = Goal(until=_moment(step.seconds))
        self.defer(
            trigger=CheckpointProgressTrigger(
                stream=self.stream.as_dict(),
                goal=goal.as_dict(),
                then=step.then,
                poll_interval=self._poll_seconds,
                on_kill_action=self.on_kill_action,
                by=by,
                pause=isinstance(step, Pause),
                handle=step.handle if isinstance(step, Job) else None,
                result=step.result if isinstance(step, Job) else None,
            ),
            method_name="on_event",
        )

    def _wait_here(self, step: Wait | Pause | Job, control: StreamControl) -> Event:
        """The same wait in this worker."""
        if isinstance(step, Job):
            return self._job_here(step, control)
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return {"outcome": REACHED, "reason": "", "status": None, "goal": {}, "then": step.then}
        while True:
            status = control.status()
            now = datetime.now(UTC)
            outcome = step.goal.judge(status, now)
            if outcome.outcome != WAITING:
                return _ended(step, outcome, status)
            self.log.info("%s", waiting_line(outcome, step.goal, now))
            report(status)
            time.sleep(self._poll_seconds)

    def _job_here(self, step: Job, control: StreamControl) -> Event:
        handle, goal = Handle.from_dict(step.handle), self.goal()
        self._job = handle
        while (ended := control.look_at_job(handle, step.result, goal)).outcome == WAITING:
            self.log.info("%s", ended.reason)
            time.sleep(self._poll_seconds)
        return {
            "outcome": ended.outcome,
            "reason": ended.reason,
            "status": None,
            "goal": {},
            "then": step.then,
            "handle": handle.as_dict(),
        }

    # --- what people see -------------------------------------------------------------------------------------------

    def _who(self, context: Any) -> str:
        ti = context["ti"]
        return f"{ti.dag_id}.{ti.task_id} {ti.run_id}"

    def submission(self, context: Any) -> str:
        """What a submit is part of: the DAG run, whichever of its tasks and tries it is."""
        ti = context["ti"]
        return f"{ti.dag_id} {ti.run_id}"

    def _show(self, context: Any, status: StreamStatus) -> None:
        """Link, state store, asset event and metrics."""
        if status.ui:
            context["ti"].xcom_push(key=SparkUiLink.xcom_key, value=status.ui)
        if (store := context.get("task_state_store")) is not None:
            summary = {"state": status.state, "time": status.time, "batch": status.batch, "reason": status.reason}
            history = list(store.get(HISTORY_KEY, []))
            if not history or history[-1]["state"] != status.state:
                store.set(HISTORY_KEY, [*history, summary][-KEEP_HISTORY:])
            store.set(STATUS_KEY, {**status.as_dict(), "partitions": []})
        self._note_on_asset(context, batch=status.batch, offsets=dict(status.offsets), state=status.state)
        report(status)

    def _note_on_asset(self, context: Any, **extra: Any) -> None:
        if has_asset(self.stream) and (events := context.get("outlet_events")) is not None:
            events[stream_asset(self.stream)].extra.update(extra)

    def _tell(self, context: Any, event: str, reason: str, status: StreamStatus | None = None) -> None:
        tell(self.notify, context, event, self.stream.name, reason, status)

    def fail(self, control: StreamControl, event: Event) -> AirflowFailException:
        """The stream failed: its reason, and the end of its log."""
        if tail := control.log_tail(30):
            self.log.error("the end of the driver's log:\n%s", tail)
        return AirflowFailException(str(event["reason"]))

    def on_kill(self) -> None:
        """The task is ended by hand: under five seconds are left."""
        if self._job is not None and self._control is not None:
            self._control.end_job(self._job)
        if self.on_kill_action == "leave" or self._control is None:
            return
        if self.on_kill_action == "stop":
            self._control.request_stop("the Airflow task was ended")
        else:
            self._control.kill(wait=0)


def _is_last_try(context: Any) -> bool:
    ti = context["ti"]
    return bool(ti.try_number > ti.max_tries)


def _ended(step: Wait, outcome: Outcome, status: StreamStatus) -> Event:
    """The end of a wait, as the trigger would tell it."""
    return {
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "status": status.as_dict(),
        "goal": step.goal.as_dict(),
        "then": step.then,
    }


def _moment(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
