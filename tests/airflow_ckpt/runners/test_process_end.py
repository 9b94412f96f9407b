"""The ends of drivers as processes: exit status, secrets, kill, launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.runners import launcher
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, VANISHED, Handle
from ckpt_stream.machine.process_identity import process_started
from tests.airflow_ckpt.runners.driver_processes import SLEEP, Start, child_of, end_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("code", "words"), [(0, "exit code 0"), (3, "exit code 3"), (143, "exit code 143 (SIGTERM)")])
def test_the_exit_status_is_kept_with_its_time(runner: ProcessRunner, start: Start, code: int, words: str) -> None:
    before = time.time()
    state = end_of(runner, start("sh", "-c", f"exit {code}"))
    assert (state.state, state.exit_code, state.detail) == (ENDED, code, words)
    assert state.ended_at is not None
    assert before <= state.ended_at <= time.time()


def test_a_driver_that_a_signal_ended_says_which(runner: ProcessRunner, start: Start) -> None:
    state = end_of(runner, start("sh", "-c", "kill -9 $$"))
    assert (state.state, state.exit_code, state.detail) == (ENDED, -9, "exit code -9 (SIGKILL)")


def test_a_program_that_is_not_there_ends_with_127_and_a_line_in_the_log(runner: ProcessRunner, start: Start) -> None:
    handle = start("/not/there/spark-submit")
    state = end_of(runner, handle)
    assert (state.state, state.exit_code) == (ENDED, 127)
    assert "cannot start /not/there/spark-submit" in runner.log_tail(handle)


@pytest.mark.parametrize("argv", [("true",), ("false",), ("/not/there",)])
def test_the_secrets_are_gone_when_the_driver_has_ended(
    runner: ProcessRunner, start: Start, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    secret = tmp_path / "secrets.conf"
    secret.write_text("hunter2")
    end_of(runner, start(*argv, secrets=(str(secret),)))
    assert not secret.exists()


#: What Spark does with it: spark-submit reads the file, and then starts the application.
READS_ITS_SECRETS = """
import os, pathlib, sys, time
from ckpt_stream.protocol.settings import input_names
print("read", pathlib.Path(os.environ[input_names.SECRETS_FILE_ENVIRONMENT]).read_text(), flush=True)
try:
    from ckpt_stream import run
    run(lambda events: events, argv=["application", "no document"])
except SystemExit as e:
    print("ended with", e.code, "secrets" in os.environ.get(input_names.SECRETS_FILE_ENVIRONMENT, ""), flush=True)
time.sleep(60)
"""


def test_the_secrets_are_there_until_the_driver_has_read_them(
    runner: ProcessRunner, start: Start, tmp_path: Path
) -> None:
    secret = tmp_path / "secrets.conf"
    secret.write_text("hunter2")
    handle = start(sys.executable, "-c", READS_ITS_SECRETS, secrets=(str(secret),))
    wait_for(lambda: not secret.exists(), "the driver to delete its secrets", 20)
    wait_for(lambda: "ended with 2 False" in runner.log_tail(handle), "the driver to go on", 20)
    assert "read hunter2" in runner.log_tail(handle)
    assert runner.look(handle).state == RUNNING


def test_the_secrets_of_a_launcher_that_was_killed_are_gone_at_the_next_look(
    runner: ProcessRunner, start: Start
) -> None:
    secret = runner.root / "ttt" / "secrets.conf"
    handle = start(*SLEEP, secrets=(str(secret),))
    secret.write_text("hunter2")
    child = child_of(handle)
    assert (runner.look(handle).state, secret.exists()) == (RUNNING, True)
    for pid in (int(handle.id), child):
        os.killpg(pid, signal.SIGKILL)
    wait_for(lambda: not runner.look(handle).live, "their end", 10)
    assert (runner.look(handle).state, secret.exists()) == (VANISHED, False)


def test_a_killed_driver_has_ended_and_so_has_everything_it_started(
    runner: ProcessRunner, start: Start, tmp_path: Path
) -> None:
    handle = start("sh", "-c", f"sleep 60 & echo $! > {tmp_path}/grandchild; wait")
    grandchild = int(
        wait_for(lambda: (tmp_path / "grandchild").exists() and (tmp_path / "grandchild").read_text(), "it")
    )
    state = runner.kill(handle)
    assert (state.state, state.exit_code) == (ENDED, -signal.SIGTERM)
    wait_for(lambda: process_started(grandchild) is None, "the grandchild's end", 5)


def test_a_driver_is_killed_by_another_runner_that_was_given_its_handle(runner: ProcessRunner, start: Start) -> None:
    handle = Handle.from_dict(json.loads(json.dumps(start().as_dict())))
    assert ProcessRunner(runner.root).kill(handle).state == ENDED
    assert runner.look(handle).exit_code == -signal.SIGTERM


@pytest.mark.parametrize("launched", [True, False], ids=["with its launcher", "after its launcher was killed"])
def test_a_driver_that_does_not_obey_is_killed_by_force(
    runner: ProcessRunner, start: Start, tmp_path: Path, launched: bool
) -> None:
    handle = start("sh", "-c", f"trap '' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done")
    wait_for(lambda: (tmp_path / "ready").exists(), "the trap", 10)
    child = child_of(handle)
    if not launched:
        os.kill(int(handle.id), signal.SIGKILL)
        wait_for(lambda: process_started(int(handle.id)) is None, "the launcher's end", 5)
    state = runner.kill(handle, wait=0.3)
    assert state.state in (ENDED, VANISHED)
    assert process_started(child) is None


def test_an_order_without_waiting_pauses_nowhere_and_is_obeyed(
    runner: ProcessRunner, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, pauses = start(), list[float]()
    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", pauses.append)
        runner.kill(handle, wait=0)
    assert pauses == []
    assert end_of(runner, handle).exit_code == -signal.SIGTERM


def test_a_driver_that_has_ended_can_be_killed_without_harm(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    assert end_of(runner, handle) == runner.kill(handle)


def test_a_launcher_gives_a_driver_its_time_and_then_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "GRACE_SECONDS", 0.2)
    code = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], process_group=0, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = time.monotonic()
        launcher._end(child)
        assert child.returncode == -signal.SIGKILL
        assert time.monotonic() - before >= 0.2


def test_a_driver_whose_launcher_was_killed_still_runs_and_is_never_called_ended(
    runner: ProcessRunner, start: Start
) -> None:
    handle = start()
    child = child_of(handle)
    os.kill(int(handle.id), signal.SIGKILL)
    wait_for(lambda: process_started(int(handle.id)) is None, "the launcher's end", 5)
    assert runner.look(handle).state == RUNNING
    state = runner.kill(handle)
    assert process_started(child) is None
    assert (state.state, state.exit_code) == (VANISHED, None)


def test_a_launcher_that_is_ended_before_there_is_a_driver_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes at the worst moment: when the launcher has noted itself, and the child is about to start."""
    real, children = subprocess.Popen, []

    def popen(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        children.append(real(*args, **kwargs))
        return children[0]

    monkeypatch.setattr(subprocess, "Popen", popen)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    # If the launcher has no handler yet, this one keeps the test's own process alive.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        code = launcher.main(["launcher.py", "--ckpt-token=t1", str(tmp_path), "--", "sleep", "3"])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (code, children[0].returncode) == (-signal.SIGTERM, -signal.SIGTERM)
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == -signal.SIGTERM
