"""Drivers as processes: detached, found again, ended from anywhere, their exit status kept."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.runners import launcher, process, work_folders
from airflow_ckpt.runners.base import (
    ENDED,
    RUNNING,
    UNKNOWN,
    VANISHED,
    DriverState,
    Handle,
    Launch,
    RunnerError,
    SubmitFailed,
)
from airflow_ckpt.runners.noted_launch import note_launch
from airflow_ckpt.runners.private_files import NotPrivate
from airflow_ckpt.runners.process import ProcessRunner
from ckpt_stream.lease import boot_id, process_started
from tests.waiting import wait_for

pytestmark = pytest.mark.unit

Start = Callable[..., Handle]
SLEEP = ("sleep", "60")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcessRunner]:
    """A runner; whatever it started is gone after the test."""
    yield ProcessRunner(tmp_path)
    for note in tmp_path.glob("*/driver.json"):
        known = json.loads(note.read_text())
        for pid, started in ((known["pid"], known["started"]), (known.get("child"), known.get("child_started"))):
            if pid and process_started(pid) == started:
                os.killpg(pid, signal.SIGKILL)


@pytest.fixture
def start(runner: ProcessRunner) -> Start:
    def start(*argv: str, token: str = "t" * 3, secrets: tuple[str, ...] = (), **env: str) -> Handle:
        folder = runner.root / token
        folder.mkdir(mode=0o700)
        return runner.start(Launch(argv or SLEEP, env, folder, secrets), token)

    return start


def end_of(runner: ProcessRunner, handle: Handle) -> DriverState:
    """How the driver was when it did not live any more."""
    wait_for(lambda: not runner.look(handle).live, "the driver's end", 10)
    return runner.look(handle)


def child_of(handle: Handle) -> int:
    """The driver's own process; its launcher is the handle's."""
    note = Path(str(handle.details["folder"])) / "driver.json"
    return int(wait_for(lambda: json.loads(note.read_text()).get("child"), "the driver", 10))


def noted_elsewhere(handle: Handle, **place: str) -> None:
    """The driver's folder says that it runs in another place."""
    note = Path(str(handle.details["folder"])) / work_folders.HOST
    note.write_text(json.dumps({"host": socket.gethostname(), "boot": boot_id(), **place}))


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


def test_a_driver_does_not_mind_a_hangup_or_an_interrupt(runner: ProcessRunner, start: Start) -> None:
    handle = start()
    child = child_of(handle)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.killpg(int(handle.id), number)
    # The launcher looks after its child four times a second, whatever else it was told.
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
    with pytest.raises(SubmitFailed, match=r"(?s)ended at once.*not-there\.py"):
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


def test_a_driver_is_found_by_its_token_by_whoever_looks(runner: ProcessRunner, start: Start) -> None:
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
    """The folder is on a disk that both machines see; who finds the driver there is not where it runs."""
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
        with pytest.raises(RunnerError, match=r"cannot be ended from here.*airflow-ckpt stop"):
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
    """As one that waits for a disk which does not answer."""
    handle = start()
    monkeypatch.setattr(process, "GONE_SECONDS", 0.1)
    with monkeypatch.context() as stuck:
        stuck.setattr(runner, "_signal", lambda handle, number: None)
        assert runner.kill(handle, wait=0.1).state == RUNNING


# --- ended -------------------------------------------------------------------------------------------------------------


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
from ckpt_stream import config
print("read", pathlib.Path(os.environ[config.SECRETS_FILE_ENVIRONMENT]).read_text(), flush=True)
try:
    from ckpt_stream import run
    run(lambda events: events, argv=["application", "no document"])
except SystemExit as e:
    print("ended with", e.code, "secrets" in os.environ.get(config.SECRETS_FILE_ENVIRONMENT, ""), flush=True)
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


def test_a_driver_that_does_not_obey_is_killed_by_force(runner: ProcessRunner, start: Start, tmp_path: Path) -> None:
    handle = start("sh", "-c", f"trap '' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done")
    wait_for(lambda: (tmp_path / "ready").exists(), "the trap", 10)
    child = child_of(handle)
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


# --- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_can_be_read_by_its_owner_alone(start: Start) -> None:
    log = Path(str(start().details["log"]))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_end_of_the_log_is_told_without_reading_all_of_it(runner: ProcessRunner, start: Start) -> None:
    handle = start("sh", "-c", "seq 1 5000; printf '\\377\\n' >&2")
    end_of(runner, handle)
    assert runner.log_tail(handle, 3) == "4999\n5000\n�"


def test_a_log_that_is_gone_is_said(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    end_of(runner, handle)
    Path(str(handle.details["log"])).unlink()
    assert "cannot be read" in runner.log_tail(handle)


def test_a_handle_names_machine_boot_and_start_and_no_secret(start: Start, tmp_path: Path) -> None:
    handle = start(secrets=(str(tmp_path / "secrets.conf"),), PASSWORD="hunter2")
    assert handle.details["host"] == socket.gethostname()
    assert handle.details["boot"] == boot_id()
    assert handle.details["started"] == process_started(int(handle.id))
    assert "hunter2" not in json.dumps(handle.as_dict())


# --- what is left behind -----------------------------------------------------------------------------------------------


def test_a_start_deletes_the_folders_of_old_runs_and_no_other(runner: ProcessRunner, start: Start) -> None:
    alive = start(token="alive")
    (runner.root / "alive" / "stream.json").write_text('{"checkpoint": "/data/orders"}')
    for number in range(work_folders.KEEP_FOLDERS + 3):
        folder = runner.root / f"old-{number:02d}"
        folder.mkdir()
        (folder / "stream.json").write_text('{"checkpoint": "/data/orders"}')
        (folder / "exit.json").write_text('{"code": 1}')
    start(token="new")
    left = sorted(path.name for path in runner.root.iterdir())
    assert left[0] == "alive"
    assert len([name for name in left if name.startswith("old-")]) == work_folders.KEEP_FOLDERS
    assert runner.look(alive).live


def test_the_log_of_a_driver_is_bounded_while_it_writes(
    runner: ProcessRunner, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = tmp_path / "launcher_of_small_logs.py"
    small.write_text(Path(launcher.__file__).read_text().replace("32 * 1024 * 1024", "100_000"))
    monkeypatch.setattr(process, "LAUNCHER", small)
    lines = "import time\nfor n in range(60):\n  print(str(n) * 5000, flush=True); time.sleep(0.02)\nprint('the end')"
    handle = start(sys.executable, "-c", lines)
    assert end_of(runner, handle).exit_code == 0
    folder = Path(str(handle.details["folder"]))
    assert (folder / "driver.log.1").exists(), "the log never grew beyond its bound"
    assert (folder / "driver.log").stat().st_size < 400_000
    assert stat.S_IMODE((folder / "driver.log.1").stat().st_mode) == 0o600
    assert runner.log_tail(handle, 1) == "the end"


def test_the_end_of_a_log_goes_back_into_what_was_moved_aside(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    end_of(runner, handle)
    folder = Path(str(handle.details["folder"]))
    (folder / "driver.log").write_text("".join(f"line {n}\n" for n in range(8)))
    launcher.bound(folder / "driver.log", 1_000)
    assert not (folder / "driver.log.1").exists()
    launcher.bound(folder / "driver.log", 10)
    with (folder / "driver.log").open("a") as log:
        log.write("line 8\n")
    assert runner.log_tail(handle, 3).splitlines() == ["line 6", "line 7", "line 8"]


# --- a handle is noted beside the checkpoint, where others may write -----------------------------------------------------


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
    with pytest.raises(RunnerError, match="cannot be ended from here"):
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


def test_a_folder_that_others_can_write_is_not_believed(
    runner: ProcessRunner, victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    handle = forged(victim, runner.root / "t7")
    (runner.root / "t7").chmod(0o777)
    state = runner.look(handle)
    assert (state.state, "chmod go-rwx" in state.detail) == (UNKNOWN, True)
    with pytest.raises(RunnerError, match="chmod go-rwx"):
        runner.kill(handle)
    assert victim.poll() is None


def test_the_files_of_a_process_with_a_loose_umask_are_believed_in_a_folder_that_nobody_else_can_enter(
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
    note_launch(runner.root / "t7", SLEEP, {}, {"checkpoint": "/data/orders"})
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
