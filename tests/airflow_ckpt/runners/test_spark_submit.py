"""spark-submit ends, its secrets with it, and only the cluster decides whether there is a driver."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from airflow_ckpt.exceptions import RunnerError, SubmitFailed
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.spark_submit import SUBMIT_LOG, run_submit, start_driver
from airflow_ckpt.streams.driver_state import Handle
from tests.airflow_ckpt.runners.fakes import submit
from tests.support.waiting import wait_for

pytestmark = pytest.mark.unit

HANDLE = Handle("yarn", "application_1_1", "abc")


def nothing(token: str) -> Handle | None:
    return None


def silence(token: str) -> Handle | None:
    raise RunnerError("ClusterDown")


def after(
    asked: int, then: Callable[[str], Handle | None], first: Callable[[str], Handle | None] = nothing
) -> Callable:
    """What the cluster says to the first questions, and what it says later."""
    questions: list[str] = []

    def find(token: str) -> Handle | None:
        questions.append(token)
        return (first if len(questions) <= asked else then)(token)

    return find


def found(token: str) -> Handle | None:
    return HANDLE


def test_the_exit_code_and_the_end_of_the_output_are_returned(tmp_path: Path) -> None:
    launch = submit(tmp_path, "print('\\n'.join(map(str, range(10_000))), flush=True); sys.exit('why')")

    code, tail = run_submit(launch, 30)

    assert code == 1
    assert tail.splitlines()[-2:] == ["9999", "why"]
    assert len(tail.splitlines()) == 40


def test_the_log_is_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / SUBMIT_LOG).touch(mode=0o644)

    run_submit(submit(tmp_path, ""), 30)

    assert stat.S_IMODE((tmp_path / SUBMIT_LOG).stat().st_mode) == 0o600


def test_it_gets_our_environment_and_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("BOTH", "1")

    _, tail = run_submit(
        submit(tmp_path, "print(*map(os.environ.get, ('OURS', 'ITS', 'BOTH')))", ITS="2", BOTH="2"), 30
    )

    assert tail == "1 2 2"


def test_it_has_a_session_of_its_own(tmp_path: Path) -> None:
    _, tail = run_submit(submit(tmp_path, "print(os.getsid(0))"), 30)

    assert int(tail) != os.getsid(0)


def test_the_secrets_are_there_while_it_runs_and_gone_afterwards(tmp_path: Path) -> None:
    _, tail = run_submit(submit(tmp_path, "print(pathlib.Path('secret.properties').read_text())"), 30)

    assert tail == "password"
    assert os.listdir(tmp_path) == [SUBMIT_LOG]


@pytest.mark.parametrize("code", ["sys.exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(60)"])
def test_no_secret_is_left_however_it_ends(tmp_path: Path, code: str) -> None:
    run_submit(submit(tmp_path, code), 0.3)

    assert os.listdir(tmp_path) == [SUBMIT_LOG]


def test_no_secret_is_left_when_there_is_no_spark_submit(tmp_path: Path) -> None:
    launch = submit(tmp_path, "")

    with pytest.raises(SubmitFailed, match="/no/spark-submit: No such file"):
        run_submit(Launch(("/no/spark-submit",), {}, tmp_path, launch.secret_files), 30)

    assert os.listdir(tmp_path) == [SUBMIT_LOG]


def test_one_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    # The child goes on after SIGTERM, as a JVM may that hangs.
    script = "trap '' TERM; sleep 60 & trap 'exit 0' TERM; echo $!; wait"
    launch = Launch(("sh", "-c", script), {}, tmp_path)

    code, tail = run_submit(launch, 0.5)

    assert code is None
    child = int(tail.splitlines()[0])
    wait_for(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", "the child's end", 10)


def test_an_interrupted_wait_ends_it_and_deletes_the_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Airflow does when a task's time is over: its AirflowTaskTimeout comes from anywhere."""
    started: list[int] = []

    def interrupted(self: object, timeout: float | None = None) -> int:
        if not started:
            started.append(self.pid)  # type: ignore[attr-defined]
            raise KeyboardInterrupt
        return original(self, timeout)  # type: ignore[arg-type]

    original = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)

    with pytest.raises(KeyboardInterrupt):
        run_submit(submit(tmp_path, "time.sleep(60)"), 30)

    assert not psutil.pid_exists(started[0])
    assert os.listdir(tmp_path) == [SUBMIT_LOG]


def test_a_submit_that_fails_says_why(tmp_path: Path) -> None:
    launch = submit(tmp_path, "sys.exit('Exception: QueueFull')")

    with pytest.raises(SubmitFailed, match=r"(?s)\b1\b.*submit.log.*Exception: QueueFull"):
        start_driver(launch, "abc", nothing)


def test_a_submit_that_fails_after_the_driver_is_there_gives_the_driver(tmp_path: Path) -> None:
    handle = start_driver(submit(tmp_path, "sys.exit(1)"), "abc", found)

    assert handle == Handle("yarn", "application_1_1", "abc", {"submit_log": str(tmp_path / SUBMIT_LOG)})


def test_a_submit_that_hangs_says_how_long(tmp_path: Path) -> None:
    launch = Launch(("sh", "-c", "echo uploading; exec sleep 60"), {}, tmp_path)

    with pytest.raises(SubmitFailed, match=r"(?s)\b0\.5 s.*uploading"):
        start_driver(launch, "abc", nothing, timeout=0.5, settle=0)


def test_a_driver_that_shows_late_after_a_submit_was_killed_is_found(tmp_path: Path) -> None:
    handle = start_driver(submit(tmp_path, "time.sleep(60)"), "abc", after(1, found), timeout=0.3, settle=5)

    assert handle.id == HANDLE.id


def test_a_driver_that_shows_late_is_found(tmp_path: Path) -> None:
    assert start_driver(submit(tmp_path, ""), "abc", after(1, found), settle=5).id == HANDLE.id


def test_a_cluster_that_is_silent_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    assert start_driver(submit(tmp_path, "sys.exit(1)"), "abc", after(1, found, silence), settle=5).id == HANDLE.id


@pytest.mark.parametrize("code", ["", "sys.exit(1)"])
def test_with_a_silent_cluster_it_is_unknown_whether_there_is_a_driver(tmp_path: Path, code: str) -> None:
    with pytest.raises(RunnerError, match="ClusterDown") as error:
        start_driver(submit(tmp_path, code), "abc", silence, settle=0)

    assert not isinstance(error.value, SubmitFailed)


def test_a_content_submit_without_a_driver_is_not_taken_for_a_failed_one(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="--deploy-mode cluster") as error:
        start_driver(submit(tmp_path, ""), "abc", nothing, settle=0)

    assert not isinstance(error.value, SubmitFailed)


def test_a_failed_submit_without_a_driver_is_reported_at_once(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(SubmitFailed):
        start_driver(submit(tmp_path, "sys.exit(1)"), "abc", nothing, settle=60)

    assert time.monotonic() - begun < 30


def test_what_the_submit_prints_is_no_proof_of_a_driver(tmp_path: Path) -> None:
    """Airflow's hook takes the driver's id from the log, and needs INFO there; a line that looks like one misleads it."""
    launch = submit(tmp_path, "print('Killed old application_9_9'); sys.exit(1)")

    with pytest.raises(SubmitFailed, match=re.escape("application_9_9")):
        start_driver(launch, "abc", nothing)
    assert start_driver(submit(tmp_path, ""), "abc", found).id == "application_1_1"
