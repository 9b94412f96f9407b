"""What `make` says on a machine that lacks something: one line, an exit code, and nothing that spoils the next try."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_ckpt.local.processes.ports import free_port

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
TARGETS = [
    "demo",
    "up",
    "down",
    "status",
    "test",
    "test-unit",
    "test-slow",
    "test-cluster",
    "test-browser",
    "faults",
    "lint",
    "bench",
    "docs",
    "dist",
    "setup",
    "clean",
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a fresh clone as `make` needs before it has installed anything."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    return folder


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder for executables that come first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def fake(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def make(checkout: Path, *arguments: str, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE", "JAVA_"))}
    clean["PATH"] = os.pathsep.join([*([str(path)] if path else []), os.environ["PATH"]])
    return subprocess.run(
        ["make", *arguments],
        cwd=checkout,
        env={**clean, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line for the user; the other one is make's own `*** [Makefile:...] Error 1`."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_help_is_the_default_and_lists_every_target(checkout: Path) -> None:
    listed = {line.split()[0] for line in make(checkout).stdout.splitlines() if line.startswith("  ")}

    assert listed == {"help", *TARGETS}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is Java 11"),
        ("echo 'java version \"1.8.0_392\"' >&2", "is Java 8"),
        ("echo 'no Java runtime present' >&2; exit 1", "does not run"),
        ("echo hello", "cannot tell the version"),
    ],
)
def test_a_wrong_java_is_named_before_anything_is_installed(
    checkout: Path, fakes: Path, answer: str, words: str
) -> None:
    fake(fakes, "java", answer)

    line = complaint(make(checkout, "up", path=fakes))

    assert words in line
    assert "apt-get install openjdk-17-jre-headless" in line
    assert not (checkout / ".uv").exists()


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_enough_java_passes_without_a_word(checkout: Path, fakes: Path, version: str) -> None:
    fake(fakes, "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")

    done = make(checkout, "java", path=fakes)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_java_home_wins_over_the_path(checkout: Path, fakes: Path, tmp_path: Path) -> None:
    fake(fakes, "java", "echo 'openjdk version \"17.0.15\"' >&2")

    assert "nowhere/bin/java does not run" in complaint(
        make(checkout, "java", path=fakes, JAVA_HOME=str(tmp_path / "nowhere"))
    )


def test_an_old_python_is_refused_and_a_newer_one_on_the_path_is_offered(checkout: Path, fakes: Path) -> None:
    fake(fakes, "old-python", "exit 1")
    fake(fakes, "python3.13", "exit 0")

    line = complaint(make(checkout, "setup", "PYTHON=old-python", path=fakes))

    assert "Python 3.11 or newer is needed" in line
    assert "make PYTHON=python3.13 <target>" in line
    assert not (checkout / ".uv").exists()


def test_an_old_python_without_alternative_is_refused_with_what_to_install(checkout: Path, fakes: Path) -> None:
    fake(fakes, "old-python", 'if [ "$1" = --version ]; then echo Python 3.8.18; else exit 1; fi')
    for newer in ("python3.13", "python3.12", "python3.11"):
        fake(fakes, newer, "exit 127")

    line = complaint(make(checkout, "setup", "PYTHON=old-python", path=fakes))

    assert "(Python 3.8.18)" in line
    assert "apt-get install python3" in line


def test_a_python_without_venv_is_refused(checkout: Path, fakes: Path) -> None:
    fake(fakes, "bare-python", 'case "$2" in *venv*) exit 1 ;; esac')

    assert "apt-get install python3-venv" in complaint(make(checkout, "setup", "PYTHON=bare-python", path=fakes))


def test_a_full_disk_is_refused(checkout: Path, fakes: Path) -> None:
    fake(fakes, "df", "echo header; echo /dev/sda1 100000 99000 1024000 99% /")

    line = complaint(make(checkout, "setup", f"PYTHON={sys.executable}", path=fakes))

    assert "only 1024 MB free" in line
    assert not (checkout / ".uv").exists()


def test_without_network_setup_says_so_and_leaves_nothing_half_installed(checkout: Path) -> None:
    no_server = f"http://127.0.0.1:{free_port()}/simple"
    offline = {"PIP_INDEX_URL": no_server, "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1", "PIP_CONFIG_FILE": os.devnull}

    line = complaint(make(checkout, "setup", f"PYTHON={sys.executable}", **offline))

    assert "cannot download uv: check the network" in line
    assert not (checkout / ".uv").exists()
    assert not (checkout / ".venv").exists()
