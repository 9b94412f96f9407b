"""A handle is noted beside the checkpoint, where other users may write: it is not trusted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import NotPrivate, RunnerError
from airflow_ckpt.runners.launch_note import save_launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import ENDED, RUNNING, UNKNOWN, Handle
from ckpt_stream.machine.process_identity import boot_id, process_started
from tests.airflow_ckpt.runners.driver_processes import SLEEP, Start, child_of, end_of

pytestmark = pytest.mark.unit


T7 = "t7"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this user that has nothing to do with streams."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as running:
        yield running
        running.kill()


def forged(victim: subprocess.Popen[bytes], folder: Path, token: str = T7) -> Handle:
    """A handle that names a process which is no driver; everything in it is true of that process."""
    folder.mkdir(exist_ok=True, mode=0o700)
    started = process_started(victim.pid)
    note = {"token": token, "pid": victim.pid, "started": started, "child": victim.pid, "child_started": started}
    (folder / "driver.json").write_text(json.dumps(note))
    (folder / "exit.json").write_text(json.dumps({"code": 0, "time": 0.0}))
    (folder / "driver.log").write_text("a file that this user can read")
    details = {"host": socket.gethostname(), "boot": boot_id(), "started": started, "folder": str(folder)}
    return Handle("process", str(victim.pid), token, details)


def test_a_handle_cannot_have_another_process_killed(
    runner: ProcessRunner, start: Start, victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    handle = forged(victim, tmp_path.parent / "elsewhere")
    assert runner.look(handle).state == UNKNOWN
    with pytest.raises(RunnerError):
        runner.kill(handle)
    end_of(runner, start("true", token="t7"))
    assert runner.kill(handle).state == ENDED
    assert victim.poll() is None


def test_a_handle_cannot_have_a_file_read_from_elsewhere(
    runner: ProcessRunner, victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    handle = forged(victim, tmp_path.parent / "elsewhere")
    assert "this user can read" not in runner.log_tail(handle)


@pytest.mark.parametrize("token", ["../elsewhere", "..", "/tmp", ""])
def test_a_token_that_is_a_path_leads_nowhere(
    runner: ProcessRunner, victim: subprocess.Popen[bytes], tmp_path: Path, token: str
) -> None:
    handle = forged(victim, tmp_path.parent / "elsewhere", token)
    assert runner.look(handle).state == UNKNOWN
    assert "this user can read" not in runner.log_tail(handle)
    with pytest.raises(NotPrivate):
        runner.find(token)
    assert victim.poll() is None


def test_a_folder_that_other_users_can_write_is_not_trusted(
    runner: ProcessRunner, victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    handle = forged(victim, runner.root / "t7")
    (runner.root / "t7").chmod(0o777)
    state = runner.look(handle)
    assert (state.state, "chmod go-rwx" in state.detail) == (UNKNOWN, True)
    with pytest.raises(RunnerError, match="chmod go-rwx"):
        runner.kill(handle)
    assert victim.poll() is None


def test_the_files_of_a_process_with_a_loose_umask_are_trusted_in_a_folder_that_no_other_user_can_enter(
    runner: ProcessRunner, start: Start
) -> None:
    """The umask of Airflow's own image."""
    before = os.umask(0o002)
    try:
        handle = start()
    finally:
        os.umask(before)
    child_of(handle)
    assert (runner.root / "ttt" / "driver.json").stat().st_mode & 0o020
    assert runner.look(handle).state == RUNNING


def test_a_runner_of_one_checkpoint_leaves_the_drivers_of_others_alone(runner: ProcessRunner, start: Start) -> None:
    handle = start(token="t7")
    save_launch(runner.root / "t7", SLEEP, {}, {"checkpoint": "/data/orders"})
    assert ProcessRunner(runner.root, "file:///data/orders/").look(handle).state == RUNNING
    other = ProcessRunner(runner.root, "/data/payments")
    assert other.look(handle).state == UNKNOWN
    with pytest.raises(RunnerError, match="/data/orders"):
        other.kill(handle)
    assert runner.look(handle).state == RUNNING


def test_a_driver_whose_folder_is_gone_is_not_called_dead(runner: ProcessRunner, start: Start) -> None:
    handle = start()
    folder = Path(str(handle.details["folder"]))
    folder.rename(folder.with_name("moved"))
    assert runner.look(handle).state == UNKNOWN
