from __future__ import annotations

import json
import os
import platform
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.detached import start_detached, stop_tree
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive, send_signal
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit

DEAF_TO_SIGTERM = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
)

# The system call by which one thread ends, and not its process.
EXIT_OF_ONE_THREAD = {"x86_64": 60, "aarch64": 93}


@pytest.fixture
def started(tmp_path):
    """Starts shell commands or Python code, and leaves none of it behind."""
    running: list[ProcessId] = []

    def start(*argv: str) -> ProcessId:
        process = start_detached(argv, log=tmp_path / "out.log")
        running.append(process)
        return process

    yield start
    for process in running:
        stop_tree(process, timeout=0)


def printed(log: Path, lines: int = 1) -> list[str]:
    """What a process has printed, as soon as that many lines are there."""
    return wait_for(
        lambda: found if len(found := log.read_text().splitlines()) >= lines else None, f"{lines} lines in {log}", 10
    )


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_detached_process_is_alone_in_its_session_and_only_the_owner_reads_its_log(started, tmp_path):
    process = started("sh", "-c", "echo to stdout; echo to stderr >&2; exec sleep 60")
    assert printed(tmp_path / "out.log", lines=2) == ["to stdout", "to stderr"]
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert stat.S_IMODE((tmp_path / "out.log").stat().st_mode) == 0o600


def test_a_process_survives_the_program_that_started_it(tmp_path):
    code = (
        "import sys, json, pathlib; from airflow_ckpt.local.processes.detached import start_detached;"
        "print(json.dumps(start_detached(['sleep', '60'], log=pathlib.Path(sys.argv[1])).to_dict()))"
    )
    argv = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "out.log")]
    starter = subprocess.run(argv, capture_output=True, text=True, check=True)
    process = ProcessId.from_dict(json.loads(starter.stdout))
    try:
        assert is_alive(process)
        assert starter.stderr == ""
    finally:
        stop_tree(process)
    assert not is_alive(process)


def test_the_log_keeps_what_an_earlier_process_printed(started, tmp_path):
    for word in ("first", "second"):
        process = started("echo", word)
        wait_for(lambda process=process: not is_alive(process), "echo to end", 10)
    assert printed(tmp_path / "out.log", lines=2) == ["first", "second"]


def test_a_program_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StackError, match="no-such-program"):
        start_detached(["no-such-program"], log=tmp_path / "out.log")


def test_another_process_with_the_same_pid_is_neither_alive_nor_signalled_nor_stopped(started):
    process = started("sleep", "60")
    former = replace(process, started=process.started - 1)
    assert not is_alive(former)
    with pytest.raises(StackError, match="gone"):
        send_signal(former, signal.SIGKILL)
    stop_tree(former, timeout=0)
    assert is_alive(process)


@pytest.mark.skipif(not psutil.LINUX, reason="elsewhere the system keeps the time of day at which a process started")
def test_a_process_stays_itself_when_the_clock_is_corrected(started, monkeypatch):
    process = started("sleep", "60")
    before = psutil.Process(process.pid).create_time()
    boot_time = psutil._pslinux.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: boot_time + 60)
    assert psutil.Process(process.pid).create_time() == before + 60, "the correction is not seen"

    assert is_alive(process)
    stop_tree(process)
    assert not psutil.pid_exists(process.pid)


def test_a_zombie_is_dead():
    child = subprocess.Popen(["true"])
    zombie = ProcessId.of(child.pid)
    wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "the child to end", 10)
    assert not is_alive(zombie)
    child.wait()


@pytest.mark.skipif(
    platform.machine() not in EXIT_OF_ONE_THREAD, reason="the number of the system call is not known here"
)
def test_a_dying_process_counts_as_alive_until_its_last_thread_is_gone(started, tmp_path):
    exit_main_thread = f"ctypes.CDLL(None).syscall({EXIT_OF_ONE_THREAD.get(platform.machine())}, 0)"
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=[60]).start();"
        f"print('ready', flush=True); {exit_main_thread}"
    )
    process = started(sys.executable, "-c", code)
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, "the look of a zombie", 10)
    assert is_alive(process)
    stop_tree(process)
    assert not is_alive(process)


def test_stopping_ends_children_that_left_the_process_group(started, tmp_path):
    process = started("sh", "-c", "setsid sleep 60 & echo $!; sleep 60 & echo $!; wait")
    children = [int(line) for line in printed(tmp_path / "out.log", lines=2)]
    assert all(map(runs, children))
    stop_tree(process)
    assert not any(map(runs, [process.pid, *children]))


def test_stopping_finds_orphans_whose_parent_is_dead_already(started, tmp_path):
    process = started("sh", "-c", "sleep 60 & echo $!")
    orphan = int(printed(tmp_path / "out.log")[0])
    wait_for(lambda: not is_alive(process), "the parent to end", 10)
    assert runs(orphan)
    stop_tree(process)
    assert not runs(orphan)


def test_a_process_that_ignores_sigterm_is_killed_in_the_end(started, tmp_path):
    process = started(sys.executable, "-c", DEAF_TO_SIGTERM)
    printed(tmp_path / "out.log")
    stop_tree(process, timeout=0.2)
    assert not psutil.pid_exists(process.pid)


def test_a_frozen_process_still_gets_the_chance_to_end_in_order(started, tmp_path):
    process = started("sh", "-c", "trap 'echo goodbye; exit' TERM; echo ready; while :; do sleep 0.1; done")
    printed(tmp_path / "out.log")
    send_signal(process, signal.SIGSTOP)
    stop_tree(process, timeout=10)
    assert printed(tmp_path / "out.log", lines=2)[-1] == "goodbye"


def test_stopping_twice_is_harmless(started):
    process = started("sleep", "60")
    stop_tree(process)
    stop_tree(process)
