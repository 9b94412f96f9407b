"""What tests ask Airflow about a DAG run: its end, and what its tasks logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.airflow.rest_api import FINAL_STATES, AirflowApi
from airflow_ckpt.local.processes.waiting import wait_for


def wait_for_run(api: AirflowApi, dag_id: str, run_id: str, *, deadline_s: float = 120) -> str:
    """Wait for the end of a run, however it ends, and return its state."""

    def final_state() -> str | None:
        state = api.run_state(dag_id, run_id)
        return state if state in FINAL_STATES else None

    return wait_for(final_state, f"run {run_id} of DAG {dag_id} to end", deadline_s)


def task_log(api: AirflowApi, dag_id: str, run_id: str, task_id: str) -> str:
    """What all tries of a task logged, one event per line."""
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
    last = int(api("GET", path)["try_number"])
    logs: list[Any] = []
    for number in range(1, last + 1):
        try:
            logs += api("GET", f"{path}/logs/{number}", params={"full_content": True})["content"]
        except StackError as error:
            # Airflow keeps nothing of a try that its scheduler ended before its start.
            if number == last or " 404 " not in f" {error} ":
                raise
    return "\n".join(map(_log_line, logs))


def _log_line(event: Any) -> str:
    """The text of a log event; of an exception, which Airflow keeps in parts, its last line too."""
    if not isinstance(event, Mapping):
        return str(event)
    failures = [f"{error.get('exc_type')}: {error.get('exc_value')}" for error in event.get("error_detail") or []]
    return "\n".join([str(event.get("event", "")), *failures])
