"""Runs one spark-submit to its end, and finds the driver that it started on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from airflow_ckpt.exceptions import RunnerError, SubmitFailed
from airflow_ckpt.runners.base import POLL_SECONDS, Launch
from airflow_ckpt.runners.work_folders import prune
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.streams.submit_intent import LATE_REQUEST_SECONDS, SUBMIT_TIMEOUT_SECONDS, TERM_SECONDS
from ckpt_stream.protocol.deadline import Deadline

SUBMIT_LOG = "submit.log"
# Room for a Java exception with its causes, and short enough for one error message.
_TAIL_LINES, _TAIL_BYTES = 40, 16_384


def start_driver(
    launch: Launch,
    token: str,
    find: Callable[[str], Handle | None],
    *,
    timeout: float = SUBMIT_TIMEOUT_SECONDS,
    settle: float = LATE_REQUEST_SECONDS,
) -> Handle:
    """Submit a driver in cluster mode, and ask the cluster for it: output and exit code of spark-submit prove nothing."""
    code, tail = run_submit(launch, timeout)
    ended = f"ended with exit code {code}" if code is not None else f"was killed: it had not ended after {timeout:g} s"
    report = f"spark-submit {ended}. The end of {launch.folder / SUBMIT_LOG}:\n{tail}"
    found, failure = _find_within(settle, token, find, once=bool(code))
    if found is not None:
        return replace(found, details={**found.details, "submit_log": str(launch.folder / SUBMIT_LOG)})
    if failure is not None:
        raise RunnerError(f"it is unknown whether there is a driver with token {token}: {failure}\n{report}")
    if code == 0:
        raise RunnerError(
            f"spark-submit exited 0, but no driver has token {token} on the cluster of the Spark connection; it may run "
            "elsewhere: compare the cluster (and namespace) of spark-submit with those of the connection, and look for "
            f"--deploy-mode cluster\n{report}"
        )
    raise SubmitFailed(f"no driver was started: {report}")


def run_submit(launch: Launch, timeout: float) -> tuple[int | None, str]:
    """Run spark-submit until it ends; returns its exit code (None: it took too long and was killed) and the end of its output."""
    log = launch.folder / SUBMIT_LOG
    prune(launch.folder.parent)
    try:
        process = _start(launch, log)
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Also when Airflow interrupts this wait, because no other process deletes the secrets after spark-submit.
            _end(process)
    finally:
        for file in launch.secret_files:
            Path(file).unlink(missing_ok=True)
    return code, _tail(log)


def _start(launch: Launch, log: Path) -> subprocess.Popen[bytes]:
    launch.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Only the owner may read the log: a user's application and Spark may print secrets.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        return subprocess.Popen(
            launch.argv,
            cwd=launch.folder,
            env={**os.environ, **launch.env},
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            # A session of its own: a signal to Airflow's process group must not interrupt a submit.
            start_new_session=True,
        )
    except OSError as error:
        raise SubmitFailed(f"cannot run {launch.argv[0]}: {error.strerror or error}: is Spark on the PATH?") from error
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, if it still runs, and its children, which may ignore SIGTERM even if the process does not."""
    if process.poll() is not None:
        return
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with suppress(subprocess.TimeoutExpired):
            process.wait(TERM_SECONDS)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])


def _find_within(
    seconds: float, token: str, find: Callable[[str], Handle | None], *, once: bool
) -> tuple[Handle | None, RunnerError | None]:
    """The driver, or the reason that it is unknown whether there is one. With `once`, the cluster's first answer is final."""
    deadline = Deadline.after(seconds)
    while True:
        failure: RunnerError | None = None
        try:
            found = find(token)
            if found is not None or once:
                return found, None
        except RunnerError as error:
            failure = error
        if deadline.passed:
            return None, failure
        time.sleep(POLL_SECONDS)
