from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_ckpt.local.airflow import airflow_state
from airflow_ckpt.local.airflow.airflow_state import AirflowState
from airflow_ckpt.local.airflow.home_files import Ports
from airflow_ckpt.local.processes.process_id import ProcessId

pytestmark = pytest.mark.unit

RUNNING = AirflowState(Ports(8080, 18793, 18794), ProcessId(12, "this boot", 3.5), 1767225600.5, "digest")


@pytest.mark.parametrize("state", [AirflowState(), AirflowState(ports=RUNNING.ports), RUNNING])
def test_a_saved_state_is_loaded_as_it_was(tmp_path: Path, state: AirflowState) -> None:
    airflow_state.save(state, tmp_path / "state.json")

    assert airflow_state.load(tmp_path / "state.json") == state


def test_without_a_file_it_is_stopped(tmp_path: Path) -> None:
    assert airflow_state.load(tmp_path / "state.json") == AirflowState()


def test_a_file_of_an_earlier_version_is_loaded(tmp_path: Path) -> None:
    process = {"pid": 12, "boot": "this boot", "started": 3.5}
    stored = {
        "ports": {"api": 8080, "worker_logs": 18793, "triggerer_logs": 18794},
        "standalone": process,
        "started_at": 1767225600.5,
        "connections": "digest",
        "restarted": [process],
    }
    (tmp_path / "state.json").write_text(json.dumps(stored))

    assert airflow_state.load(tmp_path / "state.json") == RUNNING
