"""An Airflow of the embedded stack that runs a DAG only when a test triggers it."""

from __future__ import annotations

from airflow_ckpt.local.airflow.standalone import AirflowStandalone


class UnscheduledAirflow(AirflowStandalone):
    """In the first minutes of an hour, a DAG that is unpaused would also be run by its schedule.

    The setting is added here: the embedded stack passes none of the caller's Airflow settings on.
    """

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False"}
