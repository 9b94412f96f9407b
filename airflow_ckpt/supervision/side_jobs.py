"""Runs Spark jobs beside a stream, such as a verification. They change neither its intents nor its restart history."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.exceptions import RunnerError
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.streams.driver_state import UNKNOWN, Handle
from airflow_ckpt.streams.goal import NOT_YET, OUT_OF_REACH, REACHED, TIMEOUT, Goal, Outcome

log = logging.getLogger(__name__)


def start_job(runner: Runner, launch: Launch, token: str) -> Handle:
    handle = runner.start(launch, token)
    log.info("job %s started; its log: %s", handle.id, handle.details.get("log") or runner.log_tail(handle, 1))
    return handle


def look_at_job(runner: Runner, files: FsspecFiles, handle: Handle, result: str, goal: Goal) -> Outcome:
    """Whether a job has ended. If its runner does not know, the job has ended when its result exists."""
    state = runner.look(handle)
    line = f"the job is {state.state}: {state.detail}"
    if state.live or state.state == UNKNOWN:
        if state.state == UNKNOWN and result and files.exists(result):
            return Outcome(REACHED, f"{line}; its result exists")
        if goal.deadline is not None and datetime.now(UTC) >= datetime.fromisoformat(goal.deadline):
            return Outcome(TIMEOUT, f"{line}, and did not end in time")
        return Outcome(NOT_YET, line)
    return Outcome(REACHED if state.exit_code == 0 else OUT_OF_REACH, line)


def end_job(runner: Runner, handle: Handle, *, wait: float = 0.0) -> None:
    """End a job whose result is no longer needed. If the runner fails, the error is logged."""
    try:
        state = runner.kill(handle, wait=wait)
    except RunnerError as e:
        log.warning("the job %s could not be ended: %s", handle.id, e)
    else:
        log.info("ended the job %s: %s", handle.id, state.detail or state.state)
