"""The ports and the process of one Airflow, kept between commands in `state.json`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from airflow_ckpt.local.airflow.home_files import Ports
from airflow_ckpt.local.private_file import replace_private
from airflow_ckpt.local.processes.process_id import ProcessId


@dataclass(frozen=True)
class AirflowState:
    """An Airflow that is starting or running; all fields are None if it is stopped."""

    ports: Ports | None = None
    #: The process of `airflow standalone`, and when it was started by the clock of Airflow's heartbeats.
    standalone: ProcessId | None = None
    started_at: float | None = None
    #: The digest of its connections.
    connections: str | None = None


def load(file: Path) -> AirflowState:
    """Read the file."""
    try:
        stored = json.loads(file.read_text())
    except FileNotFoundError:
        return AirflowState()
    return AirflowState(
        ports=Ports(**stored["ports"]) if stored.get("ports") else None,
        standalone=ProcessId.from_dict(stored["standalone"]) if stored.get("standalone") else None,
        started_at=stored.get("started_at"),
        connections=stored.get("connections"),
    )


def save(state: AirflowState, file: Path) -> None:
    """Replace the file."""
    document = {
        "ports": state.ports.to_dict() if state.ports else None,
        "standalone": state.standalone.to_dict() if state.standalone else None,
        "started_at": state.started_at,
        "connections": state.connections,
    }
    text = json.dumps({name: value for name, value in document.items() if value is not None}, indent=2)
    replace_private(file, f"{text}\n")
