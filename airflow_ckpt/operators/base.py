"""The base of a stream's operators: their common arguments, their steps, and the end of the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator, conf

from airflow_ckpt.assets import has_asset, stream_asset
from airflow_ckpt.exceptions import BadArgument, GivenUp, PreflightRefused, StatusUnknown, TryAgain
from airflow_ckpt.hooks.settings import read_settings
from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.links.spark_ui import SparkUiLink
from airflow_ckpt.notifications.events import GIVEN_UP, Notify, send_event
from airflow_ckpt.operators.publishing import publish_status
from airflow_ckpt.operators.steps import Done, Event, Step, WaitForJob, WaitingStep
from airflow_ckpt.operators.waiting import end_without_deferring, trigger_for, wait_in_worker
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.durations import Duration, to_timedelta
from airflow_ckpt.streams.goal import Goal
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.streams.templates import is_template
from airflow_ckpt.supervision.control import StreamControl
from ckpt_stream.errors import KafkaUnreachable, StreamError

ON_KILL_ACTIONS = ("leave", "stop", "kill")


class StreamOperator(BaseOperator):
    """Base of the operators that act on a stream.

    :param stream: the stream; every string in it is templated
    :param deferrable: wait in the triggerer instead of holding a worker slot
    :param poll_interval: time between two checks of the stream; default: `[airflow_ckpt] poll_interval`
    :param timeout: fail when the wait takes longer than this (templated); default: no limit
    :param on_kill_action: what happens to the stream when a user ends this task: `leave` it running (default), `stop` it after
        its current batch, or `kill` it
    :param allow: kinds of preflight findings that do not prevent a start, such as `["data_lost"]`; each use is logged
    :param notify: notifiers to call when the stream failed, was resumed or given up, or its verification is not clean
    """

    template_fields: Sequence[str] = ("stream", "timeout")
    template_fields_renderers: ClassVar[dict[str, str]] = {"stream": "json"}
    operator_extra_links = (SparkUiLink(),)
    ui_color = "#e8f7fb"
    #: The event that notifiers get when the task ends with a refusal.
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
            raise BadArgument(
                f"{type(self).__name__}(stream=...) must be a Stream, not of type {type(stream).__name__}."
            )
        if on_kill_action not in ON_KILL_ACTIONS:
            raise BadArgument(f"on_kill_action={on_kill_action!r} is none of {', '.join(ON_KILL_ACTIONS)}.")
        self.stream = stream
        self.deferrable = deferrable
        self.poll_interval = None if poll_interval is None else to_timedelta(poll_interval, "poll_interval")
        self.timeout = timeout if timeout is None or is_template(timeout) else to_timedelta(timeout, "timeout")
        self.on_kill_action = on_kill_action
        self.allow = tuple(allow)
        self.notify = (notify,) if callable(notify) else tuple(notify)
        self._control: StreamControl | None = None
        #: The job beside the stream for which this worker waits.
        self._job: Handle | None = None

    def render_template(self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None) -> Any:
        """Render a stream into a new one: a stream is immutable."""
        if isinstance(content, Stream):
            return content.rendered(
                lambda value: super(StreamOperator, self).render_template(value, context, jinja_env)
            )
        return super().render_template(content, context, jinja_env, seen_oids)

    # --- the steps of an operator -------------------------------------------------------------------------------------

    def begin(self, context: Any, control: StreamControl) -> Step:
        """The first step."""
        raise NotImplementedError

    def execute(self, context: Any) -> Any:
        return self._take_steps(context, lambda control: self.begin(context, control))

    def on_event(self, context: Any, event: Event | None = None, **_: Any) -> Any:
        """The trigger has fired: continue with the method that the event names."""
        if event is None:
            raise StatusUnknown("The trigger sent no event, so the state of the stream is unknown. Clear the task.")
        return self._take_steps(context, lambda control: self._step_after(context, control, event))

    def _step_after(self, context: Any, control: StreamControl, event: Event) -> Step:
        status = event.get("status")
        if status:
            self.log.info("%s", event["reason"])
            self.publish(context, StreamStatus(**{**status, "partitions": ()}))
        if event["outcome"] == "error":
            raise StatusUnknown(f"The stream's status could not be read: {event['reason']}")
        step: Step = getattr(self, str(event["then"]))(context, control, event)
        return step

    def _take_steps(self, context: Any, first: Callable[[StreamControl], Step]) -> Any:
        """Take steps until one is Done. A failure that no retry can cure fails the task for good."""
        try:
            control = self._control = StreamHook(self.stream, _actor(context)).get_conn()
            step = first(control)
            while not isinstance(step, Done):
                step = self._step_after(context, control, self._wait(step, control))
        except GivenUp as e:
            self.send_event(context, GIVEN_UP, str(e))
            raise AirflowFailException(str(e)) from e
        except KafkaUnreachable:
            # If Kafka does not answer, the state of the stream is unknown: the task fails, and Airflow's retries ask again.
            raise
        except (PreflightRefused, StreamError) as e:
            temporary = e.temporary if isinstance(e, PreflightRefused) else e.restart_may_help
            if not temporary or _is_last_try(context):
                self.send_event(context, self.refused_event, str(e))
            raise (TryAgain if temporary else AirflowFailException)(f"{type(e).__name__}: {e}") from e
        return step.value

    def _wait(self, step: WaitingStep, control: StreamControl) -> Event:
        """Wait, and return the event at the end. If the triggerer is needed, this raises TaskDeferred."""
        if not self.deferrable:
            if isinstance(step, WaitForJob):
                self._job = Handle.from_dict(step.handle)
            return wait_in_worker(step, control, self.goal(), self._poll_seconds)
        event = end_without_deferring(step, control)
        if event is None:
            self._defer(step, control.by)
        return event

    def _defer(self, step: WaitingStep, by: str) -> NoReturn:
        trigger = trigger_for(
            step,
            self.goal(),
            stream=self.stream.as_dict(),
            poll_interval=self._poll_seconds,
            on_kill_action=self.on_kill_action,
            by=by,
        )
        self.defer(trigger=trigger, method_name="on_event")

    @property
    def _poll_seconds(self) -> float:
        return self.poll_interval.total_seconds() if self.poll_interval else read_settings().poll_interval

    # --- helpers of the operators ----------------------------------------------------------------------------------------

    def goal(self, **wanted: Any) -> Goal:
        """A goal with this operator's time limit."""
        timeout = None if self.timeout is None else to_timedelta(self.timeout, "timeout")
        limit = {"deadline": (datetime.now(UTC) + timeout).isoformat()} if timeout else {}
        return Goal(**{**limit, **wanted})

    def submission(self, context: Any) -> str:
        """The DAG run that a submit belongs to; the same for all tasks and tries of the run."""
        ti = context["ti"]
        return f"{ti.dag_id} {ti.run_id}"

    def publish(self, context: Any, status: StreamStatus) -> None:
        """Show the status in the UI, the asset's event and metrics."""
        publish_status(context, self.stream, status)

    def send_event(self, context: Any, event: str, reason: str, status: StreamStatus | None = None) -> None:
        """Count an event of the stream and call the notifiers."""
        send_event(self.notify, context, event, self.stream.name, reason, status)

    def failure(self, control: StreamControl, event: Event) -> AirflowFailException:
        """The exception for a stream that failed, with the reason; logs the end of the driver's log."""
        if tail := control.log_tail(30):
            self.log.error("the end of the driver's log:\n%s", tail)
        return AirflowFailException(str(event["reason"]))

    def on_kill(self) -> None:
        """Apply `on_kill_action` when a user ends the task. Airflow allows less than five seconds for this."""
        if self._job is not None and self._control is not None:
            self._control.end_job(self._job)
        if self.on_kill_action == "leave" or self._control is None:
            return
        if self.on_kill_action == "stop":
            self._control.request_stop("the Airflow task was ended")
        else:
            self._control.kill(wait=0)


def _actor(context: Any) -> str:
    """The name under which this task acts on the stream."""
    ti = context["ti"]
    return f"{ti.dag_id}.{ti.task_id} {ti.run_id}"


def _is_last_try(context: Any) -> bool:
    ti = context["ti"]
    return bool(ti.try_number > ti.max_tries)
