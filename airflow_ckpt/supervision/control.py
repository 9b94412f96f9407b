"""Starts, resumes, stops and kills a stream, for operators, triggers and the command line. Imports no Airflow."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence

from airflow_ckpt.exceptions import NotStartable
from airflow_ckpt.kafka.lag import source_ends
from airflow_ckpt.kafka.shared_client import shared_admin
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.goal import Goal, Outcome
from airflow_ckpt.streams.preflight import DRIVER_ALIVE, LEDGER, PreflightFinding, check, refuse_unsafe_start
from airflow_ckpt.streams.status import BROKEN, ENDED_WELL, HEALTHY, STALLED, STOPPED, StreamStatus
from airflow_ckpt.supervision import side_jobs, stop_or_kill
from airflow_ckpt.supervision.current_driver import current_driver
from airflow_ckpt.supervision.launch_request import LaunchRequest
from airflow_ckpt.supervision.observing import LookBeforeStart, look, look_before_start
from airflow_ckpt.supervision.resume_plan import ResumePlan, plan_resume
from airflow_ckpt.supervision.start_conditions import read_start_conditions
from airflow_ckpt.supervision.starting import Starter
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.restart_history import (
    RESTART,
    RestartEntry,
    SubmitEntry,
    last_submission,
    read_history,
)

log = logging.getLogger(__name__)

#: The pause between two checks of a driver that ends after its batch.
STOP_POLL_SECONDS = 2.0


class StreamControl:
    """One stream, with everything that is needed to start and end its driver."""

    def __init__(self, access: StreamAccess, launch: Callable[[LaunchRequest], Launch], by: str) -> None:
        self.access, self._launch, self.by = access, launch, by
        self.stream = access.stream

    @property
    def runner(self) -> Runner:
        if self.access.runner is None:
            raise NotStartable(
                f"{self.stream.name} cannot be started from here: there is no runner for it. If its driver was submitted to a "
                "cluster, resume it from Airflow: with a task (SparkStreamResumeOperator), or the DAG that submits it."
            )
        return self.access.runner

    # The state of the stream

    def status(self, *, lag_seconds: bool = False) -> StreamStatus:
        return look(self.access, lag_seconds=lag_seconds)

    def look_before_start(self, *, lag_seconds: bool = False) -> LookBeforeStart:
        """Read everything that status and preflight need, at one time."""
        return look_before_start(self.access, lag_seconds=lag_seconds)

    def preflight(self, look: LookBeforeStart | None = None) -> list[PreflightFinding]:
        """The findings that prevent a start now, and warnings."""
        return check(self.stream, read_start_conditions(self.access, look or self.look_before_start()))

    def risks(self, look: LookBeforeStart) -> list[PreflightFinding]:
        """The findings that would prevent a restart, if the stream needed one.

        Ledger and checkpoint of a running stream are not compared, because both change while they are read.
        """
        moving = {DRIVER_ALIVE, LEDGER} if look.status.state in HEALTHY else {DRIVER_ALIVE}
        return [finding for finding in self.preflight(look) if finding.kind not in moving]

    def source_ends(self) -> dict[str, dict[str, int]]:
        """Where the input ends now: {topic: {partition: offset}}; empty if this control has no connection to Kafka."""
        if self.access.kafka is None:
            return {}
        config, admin = self.stream.config, shared_admin(client_settings(self.access.kafka))
        ends = source_ends(admin, config.source, config.source_pattern)
        return {topic: {str(p): end for p, end in found.stable.items()} for topic, found in ends.items() if found}

    def restarts_by_me(self) -> int:
        """How often this control's user has restarted the stream; the user is a task of one DAG run, in all of its tries."""
        history = read_history(self.access.files)
        return sum(entry.get("kind") == RESTART and entry.get("by") == self.by for entry in history)

    def log_tail(self, lines: int = 50) -> str:
        """The end of the current driver's log, if this machine can read it."""
        intent = current_driver(self.access.files).intent
        if intent is None or intent.handle is None or self.access.runner is None:
            return ""
        return self.access.runner.log_tail(Handle.from_dict(intent.handle), lines)

    # Starting and resuming

    @property
    def _starter(self) -> Starter:
        return Starter(self.access, self.by, self.status)

    def submit(self, *, submission: str | None = None, allow: Sequence[str] = ()) -> StreamStatus:
        """Start the stream with a new restart budget; if it is alive, attach to it.

        `submission` names the Airflow run that the submit belongs to. A second submit of the same run, as when a task is cleared,
        uses the budget of the first, so it may raise GivenUp; and it does not start a stream that was stopped since the first.
        A submit of another run withdraws a stop request that no driver has obeyed yet.
        """
        look = self.look_before_start()
        again = self._was_made_before(submission)
        if not again and (look.status.stop or look.status.stopping) and look.status.state in (*HEALTHY, STALLED):
            look = self._without_stop()
        goes_on = look.status.state == STALLED or (again and look.status.state in (*BROKEN, STOPPED))
        if goes_on:
            look = self.when_due(look)
        status = look.status
        if status.state in HEALTHY:
            log.info("attached: %s", status.line())
            self._starter.note_attach(submission)
            return status
        if goes_on and status.state in BROKEN:
            return self.resume(look, allow=allow)
        if goes_on and again:
            log.info("not started: %s; only a new submit starts it", status.line())
            return status
        token = secrets.token_hex(6)
        prepared = self._prepare(LaunchRequest(token, self._check(look, allow)))
        entry = SubmitEntry(token, self.by, status.state, submission)
        return self._starter.start_once(entry, status, *prepared)

    def _was_made_before(self, submission: str | None) -> bool:
        """Whether the last submit belongs to the same Airflow run, as when a task is retried or cleared."""
        return submission is not None and last_submission(read_history(self.access.files)) == submission

    def _without_stop(self) -> LookBeforeStart:
        """Withdraw the stop request. If a driver obeys it already, wait for the end of that driver."""
        self.access.files.remove(record_files.STOP)
        while (look := self.look_before_start()).status.stopping and look.status.state in HEALTHY:
            log.info("its driver obeys the request to stop: waiting for its end: %s", look.status.line())
            time.sleep(STOP_POLL_SECONDS)
        return look

    def when_due(self, look: LookBeforeStart) -> LookBeforeStart:
        """Wait for the pause before a restart, then read the stream again: another task or a user may have restarted it."""
        while (plan := self.plan_resume(look.status)).action == "wait":
            log.info("%s: waiting %s", plan.reason, in_words(plan.seconds))
            time.sleep(plan.seconds)
            look = self.look_before_start()
        return look

    def plan_resume(self, status: StreamStatus) -> ResumePlan:
        """Whether the stream is to be restarted, and when. Raises GivenUp if it has failed for good."""
        return plan_resume(self.stream, self.access.files, status)

    def resume(self, look: LookBeforeStart, *, allow: Sequence[str] = ()) -> StreamStatus:
        """Restart a broken stream from its checkpoint. A stalled driver is killed first, if nothing else prevents the restart."""
        if look.status.state == STALLED:
            # The ledger is compared after the driver has ended.
            refuse_unsafe_start(self.stream, [f for f in self.risks(look) if f.kind != LEDGER], allow)
            stop_or_kill.end_stalled(self.access, lambda: self.runner, look.status)
            stalled, look = look, self.look_before_start()
            if look.status.token != stalled.status.token:
                log.info("attached: another task or a user has restarted it: %s", look.status.line())
                return look.status
        broken = look.status
        token = secrets.token_hex(6)
        accepted = self._check(look, allow) if broken.state not in ENDED_WELL else ()
        now = self.status() if stop_or_kill.stop_is_pending(self.access) else broken
        if now.state in ENDED_WELL:
            log.info("not restarted: %s", now.line())
            return now
        prepared = self._prepare(LaunchRequest(token, accepted))
        entry = RestartEntry(token, self.by, broken.state, broken.run, broken.reason, broken.broken_since)
        # The claim follows the driver that preflight saw; a newer driver was not checked.
        return self._starter.start_once(entry, broken, *prepared)

    def _prepare(self, request: LaunchRequest) -> tuple[Runner, Launch]:
        """Make the launch before a claim is written, so that a driver that cannot be started uses no budget."""
        return self.runner, self._launch(request)

    def _check(self, look: LookBeforeStart, allow: Sequence[str]) -> tuple[LostRange, ...]:
        """Raise PreflightRefused if a finding prevents the start. Returns the lost ranges that `allow` accepts."""
        findings = self.preflight(look)
        for finding in findings:
            allowed = finding.unsafe and finding.kind in allow
            log.warning("preflight%s: %s", " (allowed)" if allowed else "", finding)
        refuse_unsafe_start(self.stream, findings, allow)
        return tuple(one for finding in findings for one in finding.lost)

    # Stopping and killing

    def request_stop(self, reason: str = "") -> StreamStatus:
        """Request that the driver ends after its batch; if the stream is broken, request that it is not restarted."""
        return stop_or_kill.request_stop(self.access, self.by, reason)

    def withdraw_stop(self) -> StreamStatus:
        """Delete the request to stop. A driver that is `stopping` afterwards obeyed it before, and still ends."""
        self.access.files.remove(record_files.STOP)
        return self.status()

    def kill(self, *, wait: float = 30.0) -> None:
        """End the driver at once. The next run repeats the current batch, so nothing is lost."""
        stop_or_kill.kill(self.access, lambda: self.runner, self.by, wait=wait)

    # Jobs beside the stream

    def start_job(self, request: LaunchRequest) -> Handle:
        launch = self._launch(request)
        return side_jobs.start_job(self.runner, launch, request.token)

    def look_at_job(self, handle: Handle, result: str, goal: Goal) -> Outcome:
        return side_jobs.look_at_job(self.runner, self.access.files, handle, result, goal)

    def end_job(self, handle: Handle, *, wait: float = 0.0) -> None:
        side_jobs.end_job(self.runner, handle, wait=wait)
