"""Start, resume, stop and kill a stream: what operators, triggers and the command line share. Knows no Airflow."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.kafka.clients import shared_admin
from airflow_ckpt.kafka.lag import source_ends
from airflow_ckpt.runners.base import ENDED, UNKNOWN, VANISHED, Handle, Launch, Runner, RunnerError, SubmitFailed
from airflow_ckpt.streams import intent as intents
from airflow_ckpt.streams import restarts
from airflow_ckpt.streams.current import current
from airflow_ckpt.streams.duration import in_words
from airflow_ckpt.streams.facts import gather
from airflow_ckpt.streams.goal import FAILED, REACHED, TIMEOUT, WAITING, Goal, Outcome
from airflow_ckpt.streams.intent import SubmitIntent
from airflow_ckpt.streams.observe import Sources, look, look_at_driver
from airflow_ckpt.streams.preflight import DRIVER_ALIVE, LEDGER, PreflightFinding, check, refuse_unsafe
from airflow_ckpt.streams.status import BROKEN, ENDED_WELL, HEALTHY, NEW, STALLED, STOPPED, StreamStatus
from ckpt_stream import run_record as records
from ckpt_stream.data_loss import Lost
from ckpt_stream.run_record import RESTART, SUBMIT
from ckpt_stream.security import client_settings

log = logging.getLogger(__name__)

#: How often a stop request is written anew for a stream that is restarted at the same time.
STOP_TRIES = 5
#: Between two looks at a driver that ends after its batch.
STOP_POLL_SECONDS = 2.0


#: Between the claim to a restart and the intent of its driver are two small writes; after so long the claimant is taken for dead.
CLAIM_SECONDS = 30.0


class GivenUp(CkptError):
    """The stream has failed for good: the restart strategy allows no more restarts, or none can help."""


class StillAlive(RunnerError):
    """A driver was to be killed, and may still live: none is started beside it."""


@dataclass(frozen=True)
class ResumePlan:
    """What a resume would do now."""

    #: none: nothing to do; wait: restart after `seconds`; start: restart now.
    action: str
    reason: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Order:
    """What a launch is to be made for."""

    token: str
    #: What the source has lost and a user has accepted: the run goes on behind exactly this.
    accepted_loss: tuple[Lost, ...] = ()
    #: For a job beside the stream: its document instead of the stream's, and its application if it is another one.
    document: Mapping[str, Any] | None = None
    application: str | None = None


class StreamControl:
    """One stream, with everything resolved that is needed to start and end its driver."""

    def __init__(self, sources: Sources, launch: Callable[[Order], Launch], by: str) -> None:
        self.sources, self._launch, self.by = sources, launch, by
        self.stream = sources.stream

    @property
    def runner(self) -> Runner:
        if self.sources.runner is None:
            raise CkptError(
                f"{self.stream.name} cannot be started from here: there is no runner for it. If its driver was submitted to a "
                "cluster, resume it from Airflow: with a task (SparkStreamResumeOperator), or the DAG that submits it."
            )
        return self.sources.runner

    def status(self, *, lag_seconds: bool = False) -> StreamStatus:
        return look(self.sources, lag_seconds=lag_seconds)

    def preflight(self, status: StreamStatus | None = None) -> list[PreflightFinding]:
        """Everything that speaks against a start now."""
        return check(self.stream, gather(self.sources, status or self.status()))

    def risks(self, status: StreamStatus) -> list[PreflightFinding]:
        """What would speak against a restart if the stream needed one.

        Whether ledger and checkpoint agree is left out for a stream that runs: they move while one is read after the other.
        """
        moving = {DRIVER_ALIVE, LEDGER} if status.state in HEALTHY else {DRIVER_ALIVE}
        return [finding for finding in self.preflight(status) if finding.kind not in moving]

    def source_ends(self) -> dict[str, dict[str, int]]:
        """Where the input ends now: {topic: {partition: offset}}; nothing when Kafka is not to be asked."""
        if self.sources.kafka is None:
            return {}
        config, admin = self.stream.config, shared_admin(client_settings(self.sources.kafka))
        ends = source_ends(admin, config.source, config.source_pattern)
        return {topic: {str(p): end for p, end in found.stable.items()} for topic, found in ends.items() if found}

    def restarts_by_me(self) -> int:
        """How often this control's user has restarted the stream: a task of one DAG run, whichever of its tries."""
        history = restarts.read_history(self.sources.files)
        return sum(entry.get("kind") == RESTART and entry.get("by") == self.by for entry in history)

    def submit(self, *, submission: str | None = None, allow: Sequence[str] = ()) -> StreamStatus:
        """Start the stream, with a new restart budget; a stream that lives is left alone.

        `submission` names what the submit is part of. A second one of the same name, as when a task is cleared, goes on
        with the budget that is there, and may therefore raise GivenUp; it starts nothing that was stopped since the first.
        Any other one withdraws a stop that was requested and not obeyed yet.
        """
        status = self.status()
        again = self._was_made_before(submission)
        if not again and (status.stop or status.stopping) and status.state in (*HEALTHY, STALLED):
            status = self._without_stop()
        goes_on = status.state == STALLED or (again and status.state in (*BROKEN, STOPPED))
        if goes_on:
            status = self.when_due(status)
        if status.state in HEALTHY:
            log.info("attached: %s", status.line())
            self._note_attach(submission)
            return status
        if goes_on and status.state in BROKEN:
            return self.resume(status, allow=allow)
        if goes_on and again:
            log.info("not started: %s; only a new submit starts it", status.line())
            return status
        token = secrets.token_hex(6)
        prepared = self._prepare(Order(token, self._check(status, allow)))
        return self._start_once(SUBMIT, token, status, *prepared, submission=submission)

    def _was_made_before(self, submission: str | None) -> bool:
        """Whether the last submit was the same one, as when a task is retried or cleared."""
        return (
            submission is not None and restarts.last_submission(restarts.read_history(self.sources.files)) == submission
        )

    def _without_stop(self) -> StreamStatus:
        """The stream without the request to stop it. A driver that has taken it up already is waited for."""
        status = self.withdraw_stop()
        while status.stopping and status.state in HEALTHY:
            log.info("its driver has taken up the request to stop: waiting for its end: %s", status.line())
            time.sleep(STOP_POLL_SECONDS)
            status = self.status()
        return status

    def when_due(self, status: StreamStatus) -> StreamStatus:
        """The stream when the pause before its restart is over: another task or a user may have restarted it meanwhile."""
        while (plan := self.plan_resume(status)).action == "wait":
            log.info("%s: waiting %s", plan.reason, in_words(plan.seconds))
            time.sleep(plan.seconds)
            status = self.status()
        return status

    def plan_resume(self, status: StreamStatus) -> ResumePlan:
        """Whether the stream is to be restarted, and when. Raises GivenUp if it has failed for good."""
        if status.state in HEALTHY:
            return ResumePlan("none", f"nothing to do: {status.line()}")
        if status.state not in BROKEN:
            words = "it was never started" if status.state == NEW else f"it ended on purpose ({status.state})"
            words += f": {status.reason}" if status.state != NEW and status.reason else ""
            return ResumePlan("none", f"nothing to resume: {words}; a submit starts it")
        if not status.restart_may_help:
            raise GivenUp(
                f"{self.stream.name} is {status.state} and a restart cannot help: {status.reason} {self._by_hand()}"
            )
        broken = datetime.fromisoformat(status.broken_since) if status.broken_since else datetime.now(UTC)
        history = restarts.budget(restarts.read_history(self.sources.files))
        decision = self.stream.restart.decide(history, broken)
        if not decision.allowed:
            raise GivenUp(
                f"{self.stream.name} has failed for good: {decision.reason}. Its last state is {status.state}: "
                f"{status.reason} {self._by_hand()}"
            )
        left = (broken + decision.delay - datetime.now(UTC)).total_seconds()
        return ResumePlan("wait" if left > 0 else "start", decision.reason, max(0.0, left))

    def _by_hand(self) -> str:
        return (
            "When its cause is gone, start it with a new budget: a new DAG run that submits it (clearing a task of this one "
            f"changes nothing), or `airflow-ckpt resume {self.stream.checkpoint} --new-budget`."
        )

    def resume(self, status: StreamStatus, *, allow: Sequence[str] = ()) -> StreamStatus:
        """Restart a broken stream from its checkpoint. A stalled driver is killed first, if nothing else is in the way."""
        if status.state == STALLED:
            # What moves while it is looked at waits for the driver's end.
            refuse_unsafe(self.stream, [f for f in self.risks(status) if f.kind != LEDGER], allow)
            self._end_stalled(status)
            broken, status = status, self.status()
            if status.token != broken.token:
                log.info("attached: another task or a user has restarted it: %s", status.line())
                return status
        token = secrets.token_hex(6)
        accepted = self._check(status, allow) if status.state not in ENDED_WELL else ()
        if self._stop_is_pending():
            status = self.status()
        if status.state in ENDED_WELL:
            log.info("not restarted: %s", status.line())
            return status
        prepared = self._prepare(Order(token, accepted))
        return self._start_once(
            RESTART,
            token,
            status,
            *prepared,
            after_run=status.run,
            reason=status.reason,
            broken_since=status.broken_since,
        )

    def _start_once(
        self, kind: str, token: str, status: StreamStatus, runner: Runner, launch: Launch, **about: Any
    ) -> StreamStatus:
        """Start the driver that follows the one of this status; if another one does so at this moment, attach to that."""
        files, instead_of = self.sources.files, None
        about = {**about, "by": self.by, "after_state": status.state}
        try:
            if kind == SUBMIT:
                # A restart leaves the request to stop where it is; a user who submits wants the stream again.
                self._forget_stop()
            while (
                claim := restarts.claim(files, kind, token, status.token, instead_of=instead_of, **about)
            ).number is None:
                seen = self._await_driver_after(status)
                if seen.token != status.token:
                    launch.discard()
                    log.info("attached: another task or a user has started it: %s", seen.line())
                    self._note_attach(about.get("submission"))
                    return seen
                # It has died between its claim and its intent, or cannot reach the checkpoint any more.
                instead_of = claim.other
        except BaseException:
            # No driver comes to read its secrets, and no launcher to delete them.
            launch.discard()
            raise
        return self._start(token, runner, launch, claim.number)

    def _forget_stop(self) -> None:
        files = self.sources.files
        if not files.exists(records.STOP):
            return
        try:
            files.remove(records.STOP)
        except Exception as e:
            raise CkptError(
                f"{self.stream.name} has a request to stop ({self.stream.checkpoint}/{records.STOP}) that cannot be deleted "
                f"({type(e).__name__}: {e}); its driver would obey it. Nothing was started. Give the account that Airflow uses "
                "the right to delete below the checkpoint, or delete the file, then submit again."
            ) from e

    def _await_driver_after(self, status: StreamStatus) -> StreamStatus:
        """The stream, as soon as another driver than this one is known, or as it is when the time for that is over."""
        deadline = time.monotonic() + CLAIM_SECONDS
        while (seen := self.status()).token == status.token and time.monotonic() < deadline:
            time.sleep(0.2)
        return seen

    def _stop_is_pending(self) -> bool:
        """Whether a stop was requested meanwhile. From here on the driver that is started looks for itself."""
        return look(replace(self.sources, kafka=None, runner=None)).stop is not None

    def _prepare(self, order: Order) -> tuple[Runner, Launch]:
        """Asked for before anything is noted: a driver that cannot be started uses up no budget."""
        return self.runner, self._launch(order)

    def _note_attach(self, submission: str | None) -> None:
        """So that clearing this submit after a later failure is known for what it is, and begins no new budget."""
        history = restarts.read_history(self.sources.files)
        if submission is not None and restarts.last_submission(history) != submission:
            restarts.note(self.sources.files, restarts.ATTACH, "", by=self.by, submission=submission)

    def _check(self, status: StreamStatus, allow: Sequence[str]) -> tuple[Lost, ...]:
        """Raise for what speaks against a start. Returns what the source has lost, which `allow` accepts."""
        findings = self.preflight(status)
        for finding in findings:
            allowed = finding.unsafe and finding.kind in allow
            log.warning("preflight%s: %s", " (allowed)" if allowed else "", finding)
        refuse_unsafe(self.stream, findings, allow)
        return tuple(one for finding in findings for one in finding.lost)

    def _start(self, token: str, runner: Runner, launch: Launch, number: int) -> StreamStatus:
        files = self.sources.files
        try:
            intent = intents.begin(
                files, SubmitIntent(token, records.now(), self.by, runner.kind, self.stream.as_dict(), number=number)
            )
        except BaseException:
            launch.discard()
            raise
        log.info("starting %s with token %s through the runner %s", self.stream.name, token, runner.kind)
        try:
            handle = runner.start(launch, token)
        except SubmitFailed as e:
            # Only this one is sure that there is no driver; after any other error it is looked for by its token.
            intents.noted_failure(files, intent, str(e))
            raise
        intents.answered(files, intent, handle.as_dict())
        log.info("driver %s started; its log: %s", handle.id, handle.details.get("log") or runner.log_tail(handle, 1))
        return self.status()

    def start_job(self, order: Order) -> Handle:
        """Start a Spark job beside the stream, such as a verification. It touches neither intent nor restart history."""
        launch = self._launch(order)
        handle = self.runner.start(launch, order.token)
        log.info("job %s started; its log: %s", handle.id, handle.details.get("log") or self.runner.log_tail(handle, 1))
        return handle

    def look_at_job(self, handle: Handle, result: str, goal: Goal) -> Outcome:
        """Whether a job beside the stream is over. One that cannot be seen from here is, when its result is there."""
        state = self.runner.look(handle)
        line = f"the job is {state.state}: {state.detail}"
        if state.live or state.state == UNKNOWN:
            if state.state == UNKNOWN and result and self.sources.files.exists(result):
                return Outcome(REACHED, f"{line}; its result is there")
            if goal.deadline is not None and datetime.now(UTC) >= datetime.fromisoformat(goal.deadline):
                return Outcome(TIMEOUT, f"{line}, and was not over in time")
            return Outcome(WAITING, line)
        return Outcome(REACHED if state.exit_code == 0 else FAILED, line)

    def end_job(self, handle: Handle, *, wait: float = 0.0) -> None:
        """End a job beside the stream whose result is no longer waited for."""
        try:
            state = self.runner.kill(handle, wait=wait)
        except RunnerError as e:
            log.warning("the job %s could not be ended: %s", handle.id, e)
        else:
            log.info("ended the job %s: %s", handle.id, state.detail or state.state)

    def request_stop(self, reason: str = "") -> StreamStatus:
        """Ask the driver to end after its batch; of a stream that is broken, ask that it is not restarted.

        The request holds until a new submit. One that ended on purpose, or was never started, is left as it is. Kafka is not
        asked: it may be away, and a task that is ended by hand has no time to wait for it.
        """
        sources = replace(self.sources, kafka=None)
        status = look(sources)
        for _ in range(STOP_TRIES):
            if status.state not in (*HEALTHY, *BROKEN):
                break
            asked = (status.run, status.token)
            self.sources.files.write(records.STOP, records.stop_request(self.by, reason, *asked))
            status = look(sources)
            if status.state not in HEALTHY or (status.token == asked[1] and (status.stop or status.stopping)):
                break
            # It was restarted meanwhile, and its driver may have looked for a request before this one was there; or its
            # driver has deleted this one together with one from before.
        return status

    def withdraw_stop(self) -> StreamStatus:
        """Delete the request to stop. A driver that is `stopping` afterwards has taken it up before, and ends all the same."""
        self.sources.files.remove(records.STOP)
        return self.status()

    def kill(self, *, wait: float = 30.0) -> None:
        """End the driver at once. The batch it is in is done again by the next run; nothing is lost."""
        intent, driver = look_at_driver(self.sources, current(self.sources.files).intent)
        if intent is None or intent.handle is None or driver is None:
            raise CkptError(
                f"No driver of {self.stream.name} is known that could be killed: it was not started by Airflow. "
                f"`airflow-ckpt stop {self.stream.checkpoint}` asks it to end; else end it where it was started."
            )
        if not driver.live and driver.state != UNKNOWN:
            return
        # Noted first: a look at the stream meanwhile must not call it LOST.
        intents.noted_kill(self.sources.files, intent, self.by)
        try:
            state = self.runner.kill(Handle.from_dict(intent.handle), wait=wait)
        except BaseException:
            # Also when Airflow ends the task meanwhile: a driver that was not killed and dies later is LOST.
            intents.take_back_kill(self.sources.files, intent)
            raise
        log.info("killed the driver of %s: %s", self.stream.name, state.detail or state.state)

    def _end_stalled(self, status: StreamStatus) -> None:
        """Kill it. A stop request would make it STOPPED, which is not restarted, should this restart not come about."""
        intent, driver = look_at_driver(self.sources, current(self.sources.files).intent)
        if intent is None or intent.handle is None or driver is None:
            raise CkptError(
                f"{self.stream.name} is stalled and was not started by Airflow, so it cannot be ended from here. End its "
                f"driver (run {status.run}, {status.ui or 'no UI'}) by hand, or ask it with `airflow-ckpt stop "
                f"{self.stream.checkpoint}`, then start it: `airflow-ckpt resume {self.stream.checkpoint} --new-budget`."
            )
        if intent.token != status.token:
            # Another one has ended it and started the next.
            return
        log.info("killing the stalled driver; the batch it is in is done again")
        left = self.runner.kill(Handle.from_dict(intent.handle))
        if left.state not in (ENDED, VANISHED):
            raise StillAlive(
                f"The stalled driver of {self.stream.name} was killed, and is {left.state} ({left.detail or 'no detail'}). "
                "Nothing was started: with another driver there would be two on one checkpoint. The stream counts as LOST, "
                "and is resumed, once the driver's end is confirmed or its heartbeat is silent: look at "
                f"`airflow-ckpt status {self.stream.checkpoint}`, or end the driver ({intent.handle['id']}) by hand."
            )

    def log_tail(self, lines: int = 50) -> str:
        """The end of the current driver's log, where it can be had from here."""
        intent = current(self.sources.files).intent
        if intent is None or intent.handle is None or self.sources.runner is None:
            return ""
        return self.sources.runner.log_tail(Handle.from_dict(intent.handle), lines)
