"""Kills at crash points: nothing when not armed; armed, a real SIGKILL with a file that proves it, and only once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points

pytestmark = pytest.mark.unit

FOLDER = str(Path(crash_points.__file__).parents[2])
Arm = Callable[[dict[str, Any]], None]
NO_ORDERS = ["{", "7", "[7]", "{}", '"mid_produce"']
#: What a process does at a point; the line after it shows that it went on.
REACH = "crashes.reach({point!r}, batch=5, lane=2, driver_pids=({pids}))"


def process(crash: object, *reached: str, pids: str = "") -> subprocess.CompletedProcess[str]:
    """A process of its own that is armed by its environment and comes by some points."""
    lines = [REACH.format(point=point, pids=pids) for point in reached]
    code = "\n".join(
        [
            f"import sys; sys.path.insert(0, {FOLDER!r})",
            "from ckpt_stream.machine import crashes",
            *lines,
            "print('alive', *crashes.armed_points)",
        ]
    )
    text = crash if isinstance(crash, str) else json.dumps(crash)
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={crash_points.ENVIRONMENT: text},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def once(tmp_path: Path) -> Path:
    return tmp_path / "once"


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as running:
        yield running
        running.kill()


@pytest.fixture
def armed(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Arms this very process, in which only a driver may be killed."""
    return lambda crash: monkeypatch.setattr(crashes, "_armed", [crash])


def crash(once: Path, kill: str = "worker", **where: Any) -> dict[str, Any]:
    return {"point": crash_points.AFTER_FLUSH, "kill": kill, "once": str(once), **where}


def test_not_armed_a_point_is_the_empty_function() -> None:
    assert crash_points.ENVIRONMENT not in os.environ
    assert crashes.armed_points == frozenset()
    assert crashes.reach is crashes._never
    for point in crash_points.POINTS:
        crashes.reach(point, batch=5, lane=2, driver_pids=(os.getpid(),))
        assert not crashes.is_due(point, batch=5, lane=2, driver_pids=(os.getpid(),))


@pytest.mark.parametrize("kill", ["worker", "both"])
def test_an_armed_process_dies_by_sigkill_and_the_file_proves_where(once: Path, kill: str) -> None:
    ended = process(crash(once, kill), crash_points.AFTER_INIT, crash_points.AFTER_FLUSH)
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == ""
    proof = json.loads(once.read_text())
    assert (proof["point"], proof["batch"], proof["lane"]) == ("after_flush", 5, 2)


def test_the_second_time_nothing_happens(once: Path) -> None:
    assert process(crash(once), crash_points.AFTER_FLUSH).returncode == -signal.SIGKILL
    proof = once.read_text()
    ended = process(crash(once), crash_points.AFTER_FLUSH)
    assert (ended.returncode, ended.stdout) == (0, "alive after_flush\n")
    assert once.read_text() == proof


@pytest.mark.parametrize("where", [{"batch": 4}, {"lane": 1}, {"lane": 0}, {"batch": 5, "lane": 0}])
def test_another_batch_or_lane_passes(armed: Arm, once: Path, where: dict[str, Any]) -> None:
    armed(crash(once, **where))
    assert not crashes.is_due(crash_points.AFTER_FLUSH, batch=5, lane=2)
    crashes._reach(crash_points.AFTER_FLUSH, batch=5, lane=2)
    assert not once.exists()


@pytest.mark.parametrize("where", [{}, {"batch": 5}, {"lane": 2}, {"batch": 5, "lane": 2}])
def test_the_driver_is_killed_and_the_worker_is_not(
    armed: Arm, once: Path, victim: subprocess.Popen[bytes], where: dict[str, Any]
) -> None:
    armed(crash(once, "driver", **where))
    here: dict[str, Any] = {"batch": 5, "lane": 2, "driver_pids": (victim.pid,)}
    assert crashes.is_due(crash_points.AFTER_FLUSH, **here)
    crashes._reach(crash_points.AFTER_FLUSH, **here)
    assert victim.wait(10) == -signal.SIGKILL
    assert json.loads(once.read_text())["pid"] == os.getpid()
    assert not crashes.is_due(crash_points.AFTER_FLUSH, **here)


def test_both_die_even_if_a_part_of_the_driver_is_dead_already(once: Path, victim: subprocess.Popen[bytes]) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait(10)
    ended = process(crash(once, "both"), crash_points.AFTER_FLUSH, pids=f"{gone.pid}, {victim.pid}")
    assert ended.returncode == -signal.SIGKILL
    assert victim.wait(10) == -signal.SIGKILL


def test_the_worker_is_killed_and_the_driver_is_not(once: Path, victim: subprocess.Popen[bytes]) -> None:
    ended = process(crash(once, "worker"), crash_points.AFTER_FLUSH, pids=f"{victim.pid},")
    assert ended.returncode == -signal.SIGKILL
    with pytest.raises(subprocess.TimeoutExpired):
        victim.wait(0.05)


def test_where_no_process_would_be_killed_no_file_proves_a_kill(armed: Arm, once: Path) -> None:
    armed(crash(once, "driver"))
    assert not crashes.is_due(crash_points.AFTER_FLUSH, batch=5)
    crashes._reach(crash_points.AFTER_FLUSH, batch=5, lane=2, driver_pids=())
    assert not once.exists()


@pytest.mark.parametrize("text", NO_ORDERS)
def test_a_process_with_a_text_that_arms_no_crash_can_import_and_has_no_armed_point(text: str) -> None:
    ended = process(text)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


def test_a_task_that_is_armed_with_an_unknown_point_ends_at_the_first_point(once: Path) -> None:
    ended = process({**crash(once), "point": "after_lunch"}, crash_points.AFTER_INIT)
    assert ended.returncode == 1
    assert "ConfigError: CKPT_CRASH cannot be used" in ended.stderr
    assert "after_lunch" in ended.stderr


def test_a_run_begins_with_good_crashes_and_with_none(armed: Arm, once: Path) -> None:
    crashes.refuse_unusable()
    armed(crash(once))
    crashes.refuse_unusable()


def test_two_points_can_be_armed_at_once_and_each_hits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = {**crash(tmp_path / "first"), "batch": 1}
    second = {**crash(tmp_path / "second"), "point": crash_points.AFTER_LAST_LANE, "kill": "driver"}
    monkeypatch.setattr(crashes, "_armed", [first, second])
    assert crashes.is_due(crash_points.AFTER_FLUSH, batch=1, lane=0)
    assert not crashes.is_due(crash_points.AFTER_FLUSH, batch=2, lane=0)
    assert crashes.is_due(crash_points.AFTER_LAST_LANE, batch=2, driver_pids=(0,))
    (tmp_path / "second").touch()
    assert not crashes.is_due(crash_points.AFTER_LAST_LANE, batch=2, driver_pids=(0,))
