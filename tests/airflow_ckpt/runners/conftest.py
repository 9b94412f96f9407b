"""The fakes that the runners' tests run against."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_ckpt.runners.base import Launch
from airflow_ckpt.runners.process import ProcessRunner
from airflow_ckpt.streams.driver_state import Handle
from ckpt_stream.machine.process_identity import process_started
from tests.airflow_ckpt.runners.driver_processes import SLEEP, Start
from tests.airflow_ckpt.runners.fake_kubernetes import Cluster
from tests.airflow_ckpt.runners.fake_yarn import Yarn
from tests.airflow_ckpt.runners.fakes import Answer, Server, serving


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def server(cluster: Cluster) -> Iterator[Server]:
    with serving(cluster.answer) as answering:
        yield answering


@pytest.fixture
def yarn() -> Yarn:
    return Yarn()


@pytest.fixture
def rm(yarn: Yarn) -> Iterator[Server]:
    with serving(yarn.answer) as server:
        yield server


@pytest.fixture
def other() -> Iterator[Server]:
    """A second ResourceManager of the same cluster, on standby."""
    with serving(lambda request: Answer(500)) as server:
        yield server


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcessRunner]:
    """A runner; the drivers that it started are killed after the test."""
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
