"""Finding and ending the processes of one Airflow, shown on processes that only look like it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_ckpt.local.airflow.component_processes import owned, stop_owned
from airflow_ckpt.local.airflow.home_files import OWNER_VARIABLE
from airflow_ckpt.local.processes.detached import start_detached
from airflow_ckpt.local.processes.ports import can_bind, free_port
from airflow_ckpt.local.processes.process_id import ProcessId, is_alive, send_signal
from tests.support.breakable_airflow import free_own_port
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit

SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEP}"
POLITE = f"""
import signal, sys
def end(*_):
    print("goodbye", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
{SLEEP}
"""
# Leaves a child in its session and tells its pid.
PARENT = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid, flush=True); {SLEEP}"
LISTEN = f"import socket, sys; server = socket.create_server(('127.0.0.1', int(sys.argv[1]))); {SLEEP}"


class Home:
    """A folder with processes in sessions of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions: list[ProcessId] = []

    def start(self, code: str, *arguments: str, marked: bool = False, recorded: bool = True) -> ProcessId:
        env = {OWNER_VARIABLE: str(self.path)} if marked else {}
        argv = [sys.executable, "-c", code, *arguments]
        process = start_detached(argv, log=self.path / "log", env=env)
        if recorded:
            self.sessions.append(process)
        return process

    def printed(self) -> str:
        return wait_for(lambda: (self.path / "log").read_text().strip() or None, "its first line", 10)

    def owned(self) -> set[int]:
        return {process.pid for process in owned(self.path, self.sessions)}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    stop_owned(home.path, home.sessions, timeout=1)


def test_a_process_of_a_recorded_session_is_ours_without_a_mark(home: Home) -> None:
    process = home.start(SLEEP, marked=False)

    assert home.owned() == {process.pid}


def test_a_marked_process_is_ours_in_whatever_session(home: Home) -> None:
    process = home.start(SLEEP, marked=True, recorded=False)

    assert home.owned() == {process.pid}


def test_an_orphan_is_ours_after_its_session_leader_was_killed(home: Home) -> None:
    leader = home.start(PARENT)
    orphan = int(home.printed())
    send_signal(leader, signal.SIGKILL)
    wait_for(lambda: not is_alive(leader), "the leader's end", 10)

    assert home.owned() == {orphan}

    stop_owned(home.path, home.sessions, timeout=10)

    assert home.owned() == set()


def test_a_session_of_an_earlier_life_of_the_machine_has_no_orphans(home: Home) -> None:
    leader = home.start(PARENT)
    home.printed()
    send_signal(leader, signal.SIGKILL)
    wait_for(lambda: not is_alive(leader), "the leader's end", 10)

    assert owned(home.path, [replace(leader, boot="an earlier life of the machine")]) == []


def test_a_process_of_another_home_is_left_alone(home: Home, tmp_path: Path) -> None:
    stranger = Home(tmp_path / "other")
    process = stranger.start(SLEEP, marked=True)
    try:
        stop_owned(home.path, home.sessions, timeout=1)

        assert is_alive(process)
    finally:
        stop_owned(stranger.path, stranger.sessions, timeout=10)


def test_a_stranger_that_got_the_number_of_an_old_session_is_left_alone(home: Home) -> None:
    process = home.start(SLEEP, recorded=False)
    yesterday = replace(process, started=process.started - 1)
    before_the_boot = replace(process, boot="an earlier life of the machine")
    try:
        assert owned(home.path, [yesterday]) == owned(home.path, [before_the_boot]) == []
    finally:
        stop_owned(home.path, [process], timeout=10)


def test_a_process_that_ignores_sigterm_is_killed(home: Home) -> None:
    process = home.start(DEAF)
    home.printed()

    stop_owned(home.path, home.sessions, timeout=0.5)

    assert not is_alive(process)


def test_a_frozen_process_wakes_up_and_ends_politely(home: Home) -> None:
    process = home.start(POLITE)
    home.printed()
    send_signal(process, signal.SIGSTOP)

    stop_owned(home.path, home.sessions, timeout=10)

    assert not is_alive(process)
    assert home.printed() == "ready\ngoodbye"


def test_only_our_own_listener_is_ended_to_free_a_port(home: Home) -> None:
    port = free_port()
    idle, listener = home.start(SLEEP), home.start(LISTEN, str(port))
    wait_for(lambda: not can_bind(port), "the listener", 10)

    free_own_port(home.path, home.sessions, port)

    assert can_bind(port)
    assert not is_alive(listener)
    assert is_alive(idle)


def test_a_strangers_listener_keeps_its_port(home: Home) -> None:
    port = free_port()
    stranger = home.start(LISTEN, str(port), recorded=False)
    try:
        wait_for(lambda: not can_bind(port), "the listener", 10)

        free_own_port(home.path, home.sessions, port)

        assert is_alive(stranger)
    finally:
        stop_owned(home.path, [stranger], timeout=10)
