"""One driver per checkpoint: the dead are passed at once, the living never, the silent after a while."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ckpt_stream.errors import DriverAlive
from ckpt_stream.machine.lease import read_other, refuse_if_alive
from ckpt_stream.machine.process_identity import is_alive_here, process_started, this_driver
from ckpt_stream.protocol.run_files.record_files import RUNS
from ckpt_stream.protocol.run_files.run_record import (
    FAILED,
    FINISHED,
    MISSED_HEARTBEATS,
    RUNNING,
    STARTING,
    STOPPED,
    RunRecord,
)
from tests.support.fake_clock import FakeClock
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("clock")]

#: It never goes back; no test depends on the time at which it begins.
CLOCK = FakeClock()
MINE = RunRecord("2026-b", "orders", state=STARTING)


def run(name: str = "2026-a", state: str = RUNNING, heartbeat: str = "t0", **driver: Any) -> RunRecord:
    """A run whose driver is this very process, unless the test says otherwise."""
    known = {**this_driver(1), **driver}
    return RunRecord(
        name, "orders", state=state, driver=known, heartbeat=heartbeat, settings={"checkpoint": "/data/orders"}
    )


def elsewhere(**values: Any) -> RunRecord:
    return run(**{"host": "another-machine", **values})


class Waiting:
    """Stands for sleep: counts the seconds, moves the clock, and lets something happen after each."""

    def __init__(self, then: Callable[[float], None] = lambda _: None) -> None:
        self.seconds, self._then = 0.0, then

    def __call__(self, seconds: float) -> None:
        self.seconds += seconds
        CLOCK.sleep(seconds)
        assert self.seconds < 1000, "waits for ever"
        self._then(self.seconds)


def never(seconds: float) -> None:
    raise AssertionError(f"waited for {seconds} s")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the wait moves only while it sleeps. It begins at 0, where whole seconds add up without rounding."""
    CLOCK.now = 0.0
    monkeypatch.setattr("ckpt_stream.protocol.deadline.time", CLOCK)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_the_first_driver_goes_on_at_once() -> None:
    refuse_if_alive(MINE, lambda: [], sleep=never)


@pytest.mark.parametrize("state", [STARTING, RUNNING])
def test_a_living_driver_on_this_machine_is_refused_at_once(state: str) -> None:
    record = run(state=state)
    with pytest.raises(DriverAlive) as refusal:
        refuse_if_alive(MINE, lambda: [record], sleep=never)
    message = str(refusal.value)
    for word in ("2026-a", socket.gethostname(), str(os.getpid()), "t0", "airflow-ckpt stop /data/orders"):
        assert word in message
    assert refusal.value.risk


@pytest.mark.parametrize("state", [STOPPED, FINISHED, FAILED])
def test_a_run_that_has_ended_does_not_count_even_if_its_process_lives(state: str) -> None:
    refuse_if_alive(MINE, lambda: [run(state=state)], sleep=never)


def test_a_killed_driver_on_this_machine_is_passed_at_once(child: subprocess.Popen[bytes]) -> None:
    record = run(pid=child.pid, started=process_started(child.pid))
    with pytest.raises(DriverAlive):
        refuse_if_alive(MINE, lambda: [record], sleep=never)
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    refuse_if_alive(MINE, lambda: [record], sleep=never)


def test_a_killed_driver_that_its_parent_has_not_waited_for_is_dead_too(child: subprocess.Popen[bytes]) -> None:
    record = run(pid=child.pid, started=process_started(child.pid))
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: is_alive_here(record) is False, "its death", 10)
    assert os.path.exists(f"/proc/{child.pid}/stat"), "a zombie is still listed"


def test_a_pid_that_another_process_has_got_since_is_a_dead_driver() -> None:
    started = process_started(os.getpid())
    assert started is not None
    refuse_if_alive(MINE, lambda: [run(started=started - 1)], sleep=never)


@pytest.mark.parametrize(
    "unseen",
    [
        {"host": "another-machine"},
        {"boot": "the life before"},
        {"boot": ""},
        {"boot": "same-boot pid:[another container]"},
        {"pid": None},
        {"started": None},
    ],
)
def test_a_driver_that_cannot_be_seen_from_here_is_neither_dead_nor_alive(unseen: dict[str, Any]) -> None:
    assert is_alive_here(run(**unseen)) is None


def test_a_record_without_a_driver_is_neither_dead_nor_alive() -> None:
    assert is_alive_here(RunRecord("2026-a", "orders")) is None


def test_where_the_system_shows_no_processes_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckpt_stream.machine.process_identity.boot_id", lambda: "")
    assert is_alive_here(run()) is None


def test_a_driver_elsewhere_is_waited_for_and_passed_when_its_heartbeat_stays_silent() -> None:
    said: list[str] = []
    record = elsewhere()
    waiting = Waiting(lambda _: said.append("waited") if len(said) < 2 else None)
    refuse_if_alive(MINE, lambda: [record], sleep=waiting, say=said.append)
    assert waiting.seconds == record.heartbeat_seconds * MISSED_HEARTBEATS == 30
    assert said[1:] == ["waited"]
    assert all(name in said[0] for name in ("2026-a", "another-machine"))


def test_the_wait_follows_the_other_drivers_own_heartbeat() -> None:
    record, waiting = elsewhere(), Waiting()
    record.heartbeat_seconds = 60
    refuse_if_alive(MINE, lambda: [record], sleep=waiting)
    assert waiting.seconds == 360


@pytest.mark.parametrize("state", [STARTING, RUNNING])
@pytest.mark.parametrize("at", [1, 29])
def test_a_driver_elsewhere_whose_heartbeat_moves_is_refused(at: int, state: str) -> None:
    beat = ["t0"]

    def then(seconds: float) -> None:
        if seconds == at:
            beat[0] = "t1"

    waiting = Waiting(then)
    with pytest.raises(DriverAlive, match=r"heartbeat t1\b"):
        refuse_if_alive(MINE, lambda: [elsewhere(heartbeat=beat[0], state=state)], sleep=waiting)
    assert waiting.seconds == at


def test_a_driver_elsewhere_that_ends_during_the_wait_is_waited_for_no_longer() -> None:
    states = iter([RUNNING, RUNNING, STOPPED])
    waiting = Waiting()
    refuse_if_alive(MINE, lambda: [elsewhere(state=next(states))], sleep=waiting)
    assert waiting.seconds == 2


def test_one_silent_driver_does_not_hide_one_that_lives() -> None:
    with pytest.raises(DriverAlive, match="2026-aa"):
        refuse_if_alive(MINE, lambda: [elsewhere(), run("2026-aa")], sleep=never)


def test_a_driver_that_wrote_a_last_heartbeat_and_died_here_is_passed() -> None:
    beats = iter(["t0", "t1"])
    silent = elsewhere()
    silent.heartbeat_seconds = 0.1

    def read_others() -> list[RunRecord]:
        return [silent, run("2026-aa", started=0.0, heartbeat=next(beats))]

    refuse_if_alive(MINE, read_others, sleep=Waiting())


def test_of_two_that_start_at_once_the_younger_is_refused_and_the_older_goes_on() -> None:
    older, younger = run("2026-a", STARTING), run("2026-b", STARTING)
    refuse_if_alive(older, lambda: [younger], sleep=never)
    with pytest.raises(DriverAlive):
        refuse_if_alive(younger, lambda: [older], sleep=never)


def test_a_driver_that_runs_already_is_respected_even_if_its_clock_makes_it_the_younger() -> None:
    with pytest.raises(DriverAlive, match="2026-z"):
        refuse_if_alive(MINE, lambda: [run("2026-z", RUNNING)], sleep=never)


@pytest.mark.parametrize("name", ["2026-a", "2026-z"])
def test_a_driver_that_came_first_is_respected_whatever_its_clock_says(name: str) -> None:
    first = run(name, STARTING)
    with pytest.raises(DriverAlive, match=name):
        refuse_if_alive(MINE, lambda: [first], came_first=[name], sleep=never)


def test_a_second_look_does_not_wait_again_for_a_dead_driver_and_sees_it_come_back() -> None:
    dead = refuse_if_alive(MINE, lambda: [elsewhere()], sleep=Waiting())
    assert refuse_if_alive(MINE, lambda: [elsewhere()], silent=dead, sleep=never) == dead
    with pytest.raises(DriverAlive, match=r"heartbeat t1\b"):
        refuse_if_alive(MINE, lambda: [elsewhere(heartbeat="t1")], silent=dead, sleep=never)


def test_a_second_look_sees_a_driver_that_was_not_there_at_the_first() -> None:
    dead = refuse_if_alive(MINE, lambda: [elsewhere()], sleep=Waiting())
    with pytest.raises(DriverAlive, match="2026-aa"):
        refuse_if_alive(MINE, lambda: [elsewhere(), run("2026-aa", STARTING)], silent=dead, sleep=never)


def test_this_driver_names_itself_for_good() -> None:
    driver = this_driver(jvm_pid=77)
    assert (driver["host"], driver["pid"], driver["jvm_pid"]) == (socket.gethostname(), os.getpid(), 77)
    assert is_alive_here(RunRecord("r", "orders", driver=dict(driver))) is True


def test_a_process_name_with_brackets_and_blanks_does_not_confuse_the_start_time() -> None:
    # The name stands in brackets in the very line that is read: `123 (a) b) S ...`.
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'a) Z (b', 0, 0, 0); print(flush=True); time.sleep(60)"
    with subprocess.Popen(["python3", "-S", "-c", code], stdout=subprocess.PIPE) as process:
        before = process_started(process.pid)
        assert process.stdout is not None
        process.stdout.readline()
        after = process_started(process.pid)
        process.kill()
    assert before == after is not None


def test_a_driver_that_is_first_seen_during_the_wait_for_another_is_waited_for_as_long() -> None:
    """It has just begun to run: its heartbeat has had no time to move."""
    late = elsewhere(name="2026-aa")
    waiting = Waiting()

    refuse_if_alive(MINE, lambda: [elsewhere(), *([late] if waiting.seconds >= 29 else [])], sleep=waiting)

    assert waiting.seconds == 29 + 30


def test_a_storage_that_answers_neither_driver_does_not_make_the_other_one_dead() -> None:
    """Its heartbeat could not be written while this driver could not read."""
    beats, looks = ["t0"], 0

    def read_others() -> list[RunRecord]:
        nonlocal looks
        looks += 1
        if looks == 2:
            CLOCK.sleep(10 * 5.0 * MISSED_HEARTBEATS)
        if looks == 6:
            beats[0] = "t1"
        return [elsewhere(heartbeat=beats[0])]

    with pytest.raises(DriverAlive, match=r"heartbeat t1\b"):
        refuse_if_alive(MINE, read_others, sleep=Waiting())


class OneRun:
    """A storage with one other run, whose file shows these texts one after the other."""

    def __init__(self, *texts: str | None) -> None:
        self.texts = list(texts)

    def exists(self, name: str) -> bool:
        return True

    def names(self, folder: str) -> list[str]:
        return ["2026-a.json"]

    def read(self, name: str) -> str | None:
        assert name == f"{RUNS}/2026-a.json"
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]

    def runs(self) -> list[RunRecord]:
        return [read_other(self, "2026-a", 5.0)]


@pytest.mark.parametrize("torn", [None, "", '{"format": 1, "ru', '{"format": 99}'])
def test_a_living_driver_whose_record_is_being_written_is_not_passed_over(torn: str | None) -> None:
    storage = OneRun(torn, run().to_json())
    waiting = Waiting()
    with pytest.raises(DriverAlive, match="2026-a"):
        refuse_if_alive(MINE, storage.runs, sleep=waiting)
    assert waiting.seconds == 1


@pytest.mark.parametrize("torn", [None, "", '{"format": 1, "ru', '{"format": 99}'])
def test_an_unreadable_record_that_is_not_replaced_belongs_to_a_dead_driver(torn: str | None) -> None:
    waiting = Waiting()
    refuse_if_alive(MINE, OneRun(torn).runs, sleep=waiting)
    assert waiting.seconds == 5.0 * MISSED_HEARTBEATS


def test_a_driver_of_a_later_version_that_replaces_its_record_is_alive() -> None:
    storage = OneRun('{"format": 99, "heartbeat": 1}', '{"format": 99, "heartbeat": 2}')
    with pytest.raises(DriverAlive, match="2026-a"):
        refuse_if_alive(MINE, storage.runs, sleep=Waiting())
