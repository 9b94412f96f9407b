"""`airflow-ckpt local` as a user types it, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt import __version__
from tests.support.leftovers import processes_of

PROGRAM = Path(sys.executable).with_name("airflow-ckpt")


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=240
    )


def result_of(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.unit
def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"airflow-ckpt {__version__}\n"


@pytest.mark.unit
def test_an_error_is_one_line_on_stderr_and_exit_code_1(tmp_path: Path) -> None:
    done = run("local", "up", "--home", str(tmp_path / "home"), JAVA_HOME=str(tmp_path / "nowhere"))

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("airflow-ckpt: JAVA_HOME is ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "home").exists()


@pytest.mark.unit
def test_a_mistyped_option_is_exit_code_2_without_a_traceback() -> None:
    done = run("local", "up", "--broker", "3")

    assert done.returncode == 2
    assert "No such option" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.unit
def test_the_command_line_loads_neither_airflow_nor_spark_nor_a_kafka_client() -> None:
    code = "import sys, airflow_ckpt.cli; print([m for m in ('airflow', 'pyspark', 'confluent_kafka') if m in sys.modules])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.unit
def test_status_before_the_first_up_says_that_all_is_stopped(tmp_path: Path) -> None:
    done = run("local", "status", "--home", str(tmp_path))

    assert done.returncode == 0
    assert "stopped" in done.stdout
    assert "healthy" not in done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("stack")
    yield home
    run("local", "down", "--home", str(home))


@pytest.fixture(scope="module")
def first_up(home: Path) -> dict[str, Any]:
    """What the first `up` said."""
    return result_of("local", "up", "--home", str(home))


@pytest.mark.integration
def test_an_interrupted_up_ends_with_130_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [PROGRAM, "local", "up", "--home", tmp_path],
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background lets its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as command:
        assert command.stderr is not None
        for line in command.stderr:
            if line.startswith("starting Airflow"):
                break
        command.send_signal(signal.SIGINT)
        last_words = command.stderr.read()

    assert command.returncode == 130
    assert "interrupted" in last_words
    assert "Traceback" not in last_words
    assert processes_of(tmp_path) == []


@pytest.mark.integration
def test_up_says_where_everything_is_and_how_to_log_in(first_up: dict[str, Any]) -> None:
    assert first_up["airflow"]["url"].startswith("http://127.0.0.1:")
    assert first_up["airflow"]["username"] == "admin"
    assert first_up["airflow"]["password"]
    assert first_up["kafka"]["bootstrap"].startswith("127.0.0.1:")
    assert " local " in first_up["next"]


@pytest.mark.integration
def test_a_second_up_starts_nothing_and_repeats_the_same(home: Path, first_up: dict[str, Any]) -> None:
    pids = _pids(result_of("local", "status", "--home", str(home)))

    assert result_of("local", "up", "--home", str(home)) == first_up

    assert _pids(result_of("local", "status", "--home", str(home))) == pids


@pytest.mark.integration
def test_up_as_text_shows_url_login_and_the_next_command(home: Path, first_up: dict[str, Any]) -> None:
    text = run("local", "up", "--home", str(home)).stdout

    assert first_up["airflow"]["url"] in text
    assert f"admin / {first_up['airflow']['password']}" in text
    assert first_up["next"] in text


@pytest.mark.integration
@pytest.mark.usefixtures("first_up")
def test_another_number_of_brokers_is_refused_and_disturbs_nothing(home: Path) -> None:
    done = run("local", "up", "--home", str(home), "--brokers", "3")

    assert done.returncode == 1
    assert "1 broker" in done.stderr
    assert done.stderr.count("\n") == 1
    assert result_of("local", "status", "--home", str(home))["airflow"]["healthy"]


@pytest.mark.integration
@pytest.mark.usefixtures("first_up")
def test_no_secret_is_on_a_command_line_or_readable_by_others(home: Path, first_up: dict[str, Any]) -> None:
    secret = first_up["airflow"]["password"]

    assert not any(secret in process for process in processes_of(home))
    assert (home / "airflow").stat().st_mode & 0o077 == 0


@pytest.mark.integration
@pytest.mark.usefixtures("first_up")
def test_down_leaves_no_process(home: Path) -> None:
    assert processes_of(home), "there is something to stop"

    assert result_of("local", "down", "--home", str(home))["running"] is False

    assert processes_of(home) == []


def _pids(status: dict[str, Any]) -> list[int]:
    components = status["airflow"]["components"].values()
    return [node["pid"] for node in status["kafka"]["nodes"]] + [component["pid"] for component in components]
