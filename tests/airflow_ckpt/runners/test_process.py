"""Drivers as processes: started detached, and found again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import RunnerError, SubmitFailed
from airflow_ckpt.runners import process, work_folders
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, VANISHED, DriverState, Handle
from ckpt_stream.machine.process_identity import boot_id, process_started
from tests.airflow_ckpt.runners.driver_processes import Start, child_of, end_of, noted_elsewhere

pytestmark = pytest.mark.unit


# --- started -----------------------------------------------------------------------------------------------------------


def test_a_driver_runs_in_a_session_of_its_own(runner: ProcessRunner, start: Start) -> None:
    handle = start()
    assert runner.look(handle) == DriverState(RUNNING, f"process {handle.id}", url=handle.details["log"])
    assert os.getsid(int(handle.id)) == int(handle.id) != os.getsid(0)
    assert os.getpgid(child_of(handle)) == child_of(handle) != os.getpgid(0)


def test_a_driver_survives_the_end_of_the_process_that_started_it(runner: ProcessRunner) -> None:
    token = "t1"
    (runner.root / token).mkdir(mode=0o700)
    code = f"""
import os, pathlib, signal
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.process import ProcessRunner
root = pathlib.Path({str(runner.root)!r})
ProcessRunner(root).start(Launch(("sleep", "60"), {{}}, root / {token!r}), {token!r})
os.killpg(0, signal.SIGKILL)
"""
    worker = subprocess.run([sys.executable, "-c", code], start_new_session=True, check=False)
    assert worker.returncode == -signal.SIGKILL
    handle = runner.find(token)
    assert handle is not None
    assert runner.look(handle).state == RUNNING
    assert process_started(child_of(handle)) is not None
    assert runner.look(handle).state == RUNNING


def test_a_hangup_or_an_interrupt_does_not_end_a_driver(runner: ProcessRunner, start: Start) -> None:
    handle = start()
    child = child_of(handle)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.killpg(int(handle.id), number)
    # The launcher checks its child four times a second: by now it would have obeyed the signals before.
    os.killpg(child, signal.SIGTERM)
    assert end_of(runner, handle).exit_code == -signal.SIGTERM


def test_a_driver_gets_its_environment_and_no_terminal(runner: ProcessRunner, start: Start) -> None:
    handle = start("sh", "-c", 'echo "colour $COLOUR"; cat; echo done', COLOUR="blue")
    assert end_of(runner, handle).exit_code == 0
    assert runner.log_tail(handle) == "colour blue\ndone"


def test_a_launcher_that_cannot_run_is_a_failed_submit_with_its_words(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secrets.conf"
    secret.write_text("hunter2")
    monkeypatch.setattr(process, "LAUNCHER", tmp_path / "not-there.py")
    with pytest.raises(SubmitFailed, match=r"not-there\.py"):
        start(secrets=(str(secret),))
    assert not secret.exists()


def test_a_launcher_that_does_not_note_itself_in_time_is_ended_so_that_no_driver_comes_later(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import os, sys, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(60)\n")
    monkeypatch.setattr(process, "LAUNCHER", slow)
    monkeypatch.setattr(process, "NOTE_SECONDS", 0.5)
    with pytest.raises(SubmitFailed) as caught:
        start()
    pid = int(str(caught.value).rpartition("pid ")[2])
    assert process_started(pid) is None


# --- found again -------------------------------------------------------------------------------------------------------


def test_a_driver_is_found_by_its_token_from_every_process(runner: ProcessRunner, start: Start) -> None:
    handle = start(token="t7")
    assert ProcessRunner(runner.root).find("t7") == handle
    assert Handle.from_dict(json.loads(json.dumps(handle.as_dict()))) == handle
    assert ProcessRunner(runner.root).find("t8") is None


def test_a_driver_is_found_by_its_token_after_its_end(runner: ProcessRunner, start: Start) -> None:
    assert end_of(runner, start("true", token="t7")).exit_code == 0
    found = runner.find("t7")
    assert found is not None
    assert runner.look(found).state == ENDED


def test_the_token_shows_in_the_process_list(start: Start) -> None:
    handle = start(token="t7")
    argv = Path(f"/proc/{handle.id}/cmdline").read_bytes().split(b"\0")
    assert b"--ckpt-token=t7" in argv


def test_another_process_that_got_the_same_number_is_not_the_driver(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    end_of(runner, handle)
    mine = Handle("process", str(os.getpid()), handle.token, handle.details)
    assert process_started(os.getpid()) is not None
    assert runner.look(mine).state == ENDED


def test_the_driver_of_a_machine_that_was_restarted_has_vanished(runner: ProcessRunner, start: Start) -> None:
    handle = start()
    noted_elsewhere(handle, boot="another-boot pid:[1]")
    assert runner.look(handle).state == VANISHED


def test_the_driver_of_another_container_cannot_be_seen(runner: ProcessRunner, start: Start) -> None:
    handle = start()
    noted_elsewhere(handle, boot=f"{boot_id().split()[0]} pid:[1]")
    assert runner.look(handle).state == UNKNOWN


def test_the_driver_of_another_machine_cannot_be_seen_nor_ended(runner: ProcessRunner, start: Start) -> None:
    """The folder is on a shared disk: the machine that finds the driver there is not the one where it runs."""
    secret = runner.root / "ttt" / "secrets.conf"
    handle = start("true")
    end_of(runner, handle)
    secret.write_text("hunter2")
    noted_elsewhere(handle, host="elsewhere")
    found = runner.find(handle.token)
    assert found is not None
    assert found.details["host"] == "elsewhere"
    for known in (handle, found):
        state = runner.look(known)
        assert (state.state, "elsewhere" in state.detail) == (UNKNOWN, True)
        with pytest.raises(RunnerError, match="airflow-ckpt stop"):
            runner.kill(known)
    assert secret.exists()


def test_a_driver_whose_machine_is_not_noted_cannot_be_seen(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    end_of(runner, handle)
    (runner.root / handle.token / work_folders.HOST).unlink()
    assert runner.look(handle).state == UNKNOWN


def test_a_process_that_no_signal_ends_is_waited_for_a_while_and_then_said_to_live(
    runner: ProcessRunner, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a process that waits for a disk which does not answer."""
    handle = start()
    monkeypatch.setattr(process, "GONE_SECONDS", 0.1)
    with monkeypatch.context() as stuck:
        stuck.setattr(runner, "_signal", lambda handle, number: None)
        assert runner.kill(handle, wait=0.1).state == RUNNING
