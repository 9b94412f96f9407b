"""How an operator waits: in its worker, or deferred, with a trigger that waits in the triggerer."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.metrics import report
from airflow_ckpt.operators.steps import Event, Pause, Wait, WaitForJob, WaitingStep, end_event, event_of, moment_in
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.goal import NOT_YET, REACHED, Goal, waiting_line
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.triggers.progress import CheckpointProgressTrigger

#: Pauses of up to this length take place in the worker, even if the task may defer: see MIN_DEFERRED_SECONDS.
SHORT_PAUSE = 5.0

log = logging.getLogger(__name__)


def wait_in_worker(step: WaitingStep, control: StreamControl, limit: Goal, poll_seconds: float) -> Event:
    """Wait until the step has ended. `limit` is a goal with only the operator's time limit."""
    if isinstance(step, Pause):
        time.sleep(step.seconds)
        return event_of(step.then, REACHED, "")
    if isinstance(step, WaitForJob):
        return _wait_for_job(step, control, limit, poll_seconds)
    while True:
        status = control.status()
        now = datetime.now(UTC)
        outcome = step.goal.judge(status, now)
        if outcome.outcome != NOT_YET:
            return end_event(step, outcome, status)
        log.info("%s", waiting_line(outcome, step.goal, now))
        report(status)
        time.sleep(poll_seconds)


def _wait_for_job(step: WaitForJob, control: StreamControl, limit: Goal, poll_seconds: float) -> Event:
    handle = Handle.from_dict(step.handle)
    while (found := control.look_at_job(handle, step.result, limit)).outcome == NOT_YET:
        log.info("%s", found.reason)
        time.sleep(poll_seconds)
    return {**event_of(step.then, found.outcome, found.reason), "handle": handle.as_dict()}


def end_without_deferring(step: WaitingStep, control: StreamControl) -> Event | None:
    """The end of a step that needs no triggerer: a short pause, or a goal that is already reached or out of reach."""
    if isinstance(step, Pause):
        return wait_in_worker(step, control, Goal(), 0) if step.seconds <= SHORT_PAUSE else None
    if isinstance(step, WaitForJob):
        return None
    try:
        status = control.status()
    except Exception as e:
        # The trigger checks again, and tolerates several such errors in a row.
        log.warning("the stream's status could not be read: %s: %s", type(e).__name__, e)
        return None
    outcome = step.goal.judge(status, datetime.now(UTC))
    return None if outcome.outcome == NOT_YET else end_event(step, outcome, status)


def trigger_for(step: WaitingStep, limit: Goal, **options: Any) -> CheckpointProgressTrigger:
    """The trigger that waits for the end of a step."""
    goal = step.goal if isinstance(step, Wait) else limit
    if isinstance(step, Pause):
        goal = Goal(until=moment_in(step.seconds))
    return CheckpointProgressTrigger(
        goal=goal.as_dict(),
        then=step.then,
        pause=isinstance(step, Pause),
        handle=step.handle if isinstance(step, WaitForJob) else None,
        result=step.result if isinstance(step, WaitForJob) else None,
        **options,
    )
