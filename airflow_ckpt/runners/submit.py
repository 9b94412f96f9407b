"""Run one spark-submit to its end, and name the driver that it left on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from airflow_ckpt.runners.base import Handle, Launch, RunnerError, SubmitFailed
from airflow_ckpt.runners.work_folders import prune

LOG = "submit.log"
#: In cluster mode spark-submit only uploads files and asks for a driver; a slow upload is what takes minutes.
SUBMIT_TIMEOUT_S = 300.0
#: A request that was under way when spark-submit ended shows within seconds; so does a cluster's change of master.
SETTLE_S = 15.0
POLL_S = 0.5
# Enough for Java's exception with its causes, few enough for one error message.
_TAIL_LINES, _TAIL_BYTES = 40, 16_384
_TERM_S = 5.0
#: The longest that a submitter may take until it knows its driver, with half a minute for the cluster's last answer: before
#: that nobody may conclude that there is none.
LONGEST_SUBMIT_S = SUBMIT_TIMEOUT_S + 2 * _TERM_S + SETTLE_S + 30.0


def start_driver(
    launch: Launch,
    token: str,
    find: Callable[[str], Handle | None],
    *,
    timeout: float = SUBMIT_TIMEOUT_S,
    settle: float = SETTLE_S,
) -> Handle:
    """Submit a driver in cluster mode, and ask the cluster for it: what spark-submit prints or returns proves nothing."""
    code, tail = run_submit(launch, timeout)
    ended = f"ended with exit code {code}" if code is not None else f"was killed: it had not ended after {timeout:g} s"
    report = f"spark-submit {ended}. The end of {launch.folder / LOG}:\n{tail}"
    found, silence = _find_within(settle, token, find, once=bool(code))
    if found is not None:
        return replace(found, details={**found.details, "submit_log": str(launch.folder / LOG)})
    if silence is not None:
        raise RunnerError(f"it is unknown whether there is a driver with token {token}: {silence}\n{report}")
    if code == 0:
        raise RunnerError(
            f"spark-submit exited 0, but no driver has token {token} on the cluster that was asked; it may run elsewhere: "
            f"compare the cluster (and namespace) of spark-submit with ours, and look for --deploy-mode cluster\n{report}"
        )
    raise SubmitFailed(f"no driver was started: {report}")


def run_submit(launch: Launch, timeout: float) -> tuple[int | None, str]:
    """Run spark-submit until it ends: its exit code (None: it took too long and was killed) and the end of its output."""
    log = launch.folder / LOG
    prune(launch.folder.parent)
    try:
        process = _start(launch, log)
        try:
            code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # Also when Airflow interrupts this wait: nobody would be left to delete the secrets after spark-submit.
            _end(process)
    finally:
        for file in launch.secret_files:
            Path(file).unlink(missing_ok=True)
    return code, _tail(log)


def _start(launch: Launch, log: Path) -> subprocess.Popen[bytes]:
    launch.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Only for the owner: what a user's application or Spark prints may hold anything.
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
            # A session of its own: a signal to Airflow's process group must not cut a submit in half.
            start_new_session=True,
        )
    except OSError as error:
        raise SubmitFailed(f"cannot run {launch.argv[0]}: {error.strerror or error}: is Spark on the PATH?") from error
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what still runs of it, with its children, which may care less for SIGTERM than itself."""
    if process.poll() is not None:
        return
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sig)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_S)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])


def _find_within(
    seconds: float, token: str, find: Callable[[str], Handle | None], *, once: bool
) -> tuple[Handle | None, RunnerError | None]:
    """The driver, or why nobody could tell. With `once`, the first sure "there is none" is enough."""
    deadline = time.monotonic() + seconds
    while True:
        silence: RunnerError | None = None
        try:
            found = find(token)
            if found is not None or once:
                return found, None
        except RunnerError as error:
            silence = error
        if time.monotonic() >= deadline:
            return None, silence
        time.sleep(POLL_S)
