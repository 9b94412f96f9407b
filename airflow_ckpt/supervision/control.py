"""Start, resume, stop and kill a stream: what operators, triggers and the command line share. Knows no Airflow."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence

from airflow_ckpt.exceptions import CkptError
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

#: Between two looks at a driver that ends after its batch.
STOP_POLL_SECONDS = 2.0


class StreamControl:
    """One stream, with everything resolved that is needed to start and end its driver."""

    def __init__(self, access: StreamAccess, launch: Callable[[LaunchRequest], Launch], by: str) -> None:
        self.access, self._launch, self.by = access, launch, by
        self.stream = access.stream

    @property
    def runner(self) -> Runner:
        if self.access.runner is None:
            raise CkptError(
                f"{self.stream.name} cannot be started from here: there is no runner for it. If its driver was submitted to a "
                "cluster, resume it from Airflow: with a task (SparkStreamResumeOperator), or the DAG that submits it."
            )
        return self.access.runner

    # What is known about the stream

    def status(self, *, lag_seconds: bool = False) -> StreamStatus:
        return look(self.access, lag_seconds=lag_seconds)

    def look_before_start(self, *, lag_seconds: bool = False) -> LookBeforeStart:
        """The status, with what preflight needs of the same look."""
        return look_before_start(self.access, lag_seconds=lag_seconds)

    def preflight(self, look: LookBeforeStart | None = None) -> list[PreflightFinding]:
        """Everything that prevents a start now."""
        return check(self.stream, read_start_conditions(self.access, look or self.look_before_start()))

    def risks(self, look: LookBeforeStart) -> list[PreflightFinding]:
        """What would prevent a restart if the stream needed one.

        Whether ledger and checkpoint agree is left out for a stream that runs: they move while one is read after the other.
        """
        moving = {DRIVER_ALIVE, LEDGER} if look.status.state in HEALTHY else {DRIVER_ALIVE}
        return [finding for finding in self.preflight(look) if finding.kind not in moving]

    def source_ends(self) -> dict[str, dict[str, int]]:
        """Where the input ends now: {topic: {partition: offset}}; nothing when Kafka is not to be asked."""
        if self.access.kafka is None:
            return {}
        config, admin = self.stream.config, shared_admin(client_settings(self.access.kafka))
        ends = source_ends(admin, config.source, config.source_pattern)
        return {topic: {str(p): end for p, end in found.stable.items()} for topic, found in ends.items() if found}

    def restarts_by_me(self) -> int:
        """How often this control's user has restarted the stream: a task of one DAG run, in all of its tries."""
        history = read_history(self.access.files)
        return sum(entry.get("kind") == RESTART and entry.get("by") == self.by for entry in history)

    def log_tail(self, lines: int = 50) -> str:
        """The end of the current driver's log, where it can be had from here."""
        intent = current_driver(self.access.files).intent
        if intent is None or intent.handle is None or self.access.runner is None:
            return ""
        return self.access.runner.log_tail(Handle.from_dict(intent.handle), lines)

    # Starting and resuming

    @property
    def _starter(self) -> Starter:
        return Starter(self.access, self.by, self.status)

    def submit(self, *, submission: str | None = None, allow: Sequence[str] = ()) -> StreamStatus:
        """Start the stream, with a new restart budget; a stream that lives is left alone.

        `submission` names what the submit is part of. A second one of the same name, as when a task is cleared, goes on
        with the budget that is there, and may therefore raise GivenUp; it starts nothing that was stopped since the first.
        Any other one withdraws a stop that was requested and not obeyed yet.
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
        """Whether the last submit was the same one, as when a task is retried or cleared."""
        return submission is not None and last_submission(read_history(self.access.files)) == submission

    def _without_stop(self) -> LookBeforeStart:
        """The stream without the request to stop it. A driver that has taken it up already is waited for."""
        self.access.files.remove(record_files.STOP)
        while (look := self.look_before_start()).status.stopping and look.status.state in HEALTHY:
            log.info("its driver has taken up the request to stop: waiting for its end: %s", look.status.line())
            time.sleep(STOP_POLL_SECONDS)
        return look

    def when_due(self, look: LookBeforeStart) -> LookBeforeStart:
        """The stream when the pause before its restart is over: another task or a user may have restarted it by then."""
        while (plan := self.plan_resume(look.status)).action == "wait":
            log.info("%s: waiting %s", plan.reason, in_words(plan.seconds))
            time.sleep(plan.seconds)
            look = self.look_before_start()
        return look

    def plan_resume(self, status: StreamStatus) -> ResumePlan:
        """Whether the stream is to be restarted, and when. Raises GivenUp if it has failed for good."""
        return plan_resume(self.stream, self.access.files, status)

    def resume(self, look: LookBeforeStart, *, allow: Sequence[str] = ()) -> StreamStatus:
        """Restart a broken stream from its checkpoint. A stalled driver is killed first, if nothing else is in the way."""
        if look.status.state == STALLED:
            # What moves while it is looked at waits for the driver's end.
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
        # After the driver that preflight has seen: of a driver that came meanwhile it says nothing.
        return self._starter.start_once(entry, broken, *prepared)

    def _prepare(self, request: LaunchRequest) -> tuple[Runner, Launch]:
        """Asked for before anything is noted: a driver that cannot be started uses up no budget."""
        return self.runner, self._launch(request)

    def _check(self, look: LookBeforeStart, allow: Sequence[str]) -> tuple[LostRange, ...]:
        """Raise for what prevents a start. Returns what the source has lost, which `allow` accepts."""
        findings = self.preflight(look)
        for finding in findings:
            allowed = finding.unsafe and finding.kind in allow
            log.warning("preflight%s: %s", " (allowed)" if allowed else "", finding)
        refuse_unsafe_start(self.stream, findings, allow)
        return tuple(one for finding in findings for one in finding.lost)

    # Stopping and killing

    def request_stop(self, reason: str = "") -> StreamStatus:
        """Ask the driver to end after its batch; of a stream that is broken, ask that it is not restarted."""
        return stop_or_kill.request_stop(self.access, self.by, reason)

    def withdraw_stop(self) -> StreamStatus:
        """Delete the request to stop. A driver that is `stopping` afterwards has taken it up before, and still ends."""
        self.access.files.remove(record_files.STOP)
        return self.status()

    def kill(self, *, wait: float = 30.0) -> None:
        """End the driver at once. The batch it is in is done again by the next run; nothing is lost."""
        stop_or_kill.kill(self.access, lambda: self.runner, self.by, wait=wait)

    # Jobs beside the stream

    def start_job(self, request: LaunchRequest) -> Handle:
        launch = self._launch(request)
        return side_jobs.start_job(self.runner, launch, request.token)

    def look_at_job(self, handle: Handle, result: str, goal: Goal) -> Outcome:
        return side_jobs.look_at_job(self.runner, self.access.files, handle, result, goal)

    def end_job(self, handle: Handle, *, wait: float = 0.0) -> None:
        side_jobs.end_job(self.runner, handle, wait=wait)
