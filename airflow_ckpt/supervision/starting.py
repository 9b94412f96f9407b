"""Starts a driver once: if several tasks and users react to the same failure at the same time, only one of them starts a driver.

Each writes a claim into the restart history before it starts a driver. The task or user whose claim is accepted continues, the
others attach to its driver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_ckpt.exceptions import StorageError, SubmitFailed
from airflow_ckpt.runners.base import Launch, Runner
from airflow_ckpt.streams.status import StreamStatus
from airflow_ckpt.streams.submit_intent import SubmitIntent
from airflow_ckpt.supervision import intent_files
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.run_files.restart_history import RestartEntry, SubmitEntry, claim, note_attach

log = logging.getLogger(__name__)

#: A task that wrote a claim but no intent within this time counts as dead: only two small writes are between claim and intent.
CLAIM_SECONDS = 30.0


@dataclass(frozen=True)
class Starter:
    """Starts drivers of one stream in the name of one task or user."""

    access: StreamAccess
    #: The task instance, or user@host.
    by: str
    #: Observes the stream again.
    status: Callable[[], StreamStatus]

    def start_once(
        self, entry: SubmitEntry | RestartEntry, after: StreamStatus, runner: Runner, launch: Launch
    ) -> StreamStatus:
        """Start the driver that follows the driver of `after`; if another task or user is doing so, attach to that driver."""
        try:
            number = self._claim(entry, after)
        except BaseException:
            # Without a driver, no launcher would delete the secrets.
            launch.discard()
            raise
        if isinstance(number, StreamStatus):
            launch.discard()
            log.info("attached: another task or a user has started it: %s", number.line())
            if isinstance(entry, SubmitEntry):
                self.note_attach(entry.submission)
            return number
        return self._start(entry.token, runner, launch, number)

    def _claim(self, entry: SubmitEntry | RestartEntry, after: StreamStatus) -> int | StreamStatus:
        """The number of the accepted claim, or the status with the driver that another task or user has started."""
        files, instead_of = self.access.files, None
        if isinstance(entry, SubmitEntry):
            # A submit withdraws a stop request, a restart does not: a user who submits wants the stream to run.
            self._forget_stop()
        while (claimed := claim(files, entry, after.token, instead_of=instead_of)).number is None:
            seen = self._await_driver_after(after)
            if seen.token != after.token:
                return seen
            # The other task or user died between claim and intent, or can no longer reach the checkpoint.
            instead_of = claimed.other
        return claimed.number

    def _await_driver_after(self, status: StreamStatus) -> StreamStatus:
        """Wait until another driver than this one is known, at most for CLAIM_SECONDS; returns the status then."""
        deadline = Deadline.after(CLAIM_SECONDS)
        while (seen := self.status()).token == status.token and not deadline.passed:
            time.sleep(0.2)
        return seen

    def _forget_stop(self) -> None:
        files, stream = self.access.files, self.access.stream
        if not files.exists(record_files.STOP):
            return
        try:
            files.remove(record_files.STOP)
        except Exception as e:
            raise StorageError(
                f"{stream.name} has a request to stop ({stream.checkpoint}/{record_files.STOP}) that cannot be deleted "
                f"({type(e).__name__}: {e}); its driver would obey it. Nothing was started. Give the account that Airflow uses "
                "the right to delete below the checkpoint, or delete the file, then submit again."
            ) from e

    def note_attach(self, submission: str | None) -> None:
        """Note that this submit found a driver, so that clearing its task after a later failure begins no new budget."""
        note_attach(self.access.files, submission, self.by)

    def _start(self, token: str, runner: Runner, launch: Launch, number: int) -> StreamStatus:
        files, stream = self.access.files, self.access.stream
        try:
            intent = intent_files.write_new_intent(
                files, SubmitIntent(token, record_files.now(), self.by, runner.kind, stream.as_dict(), number=number)
            )
        except BaseException:
            launch.discard()
            raise
        log.info("starting %s with token %s through the runner %s", stream.name, token, runner.kind)
        try:
            handle = runner.start(launch, token)
        except SubmitFailed as e:
            # Only this error proves that there is no driver. After any other error the driver is looked for by its token.
            intent_files.add_failure(files, intent, str(e))
            raise
        intent_files.add_handle(files, intent, handle.as_dict())
        log.info("driver %s started; its log: %s", handle.id, handle.details.get("log") or runner.log_tail(handle, 1))
        return self.status()
