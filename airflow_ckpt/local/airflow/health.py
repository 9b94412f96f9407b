"""Judges the answer of Airflow's health endpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

MONITORED = ("metadatabase", "scheduler", "triggerer", "dag_processor")


def is_healthy(
    health: Mapping[str, Mapping[str, Any]], *, since: float, monitored: Collection[str] = MONITORED
) -> bool:
    """Whether Airflow reports these components as healthy, because of a heartbeat after `since`.

    Airflow reports a component as healthy for 30 seconds after the last heartbeat, even if its process was killed.
    """
    return bool(health) and all(
        health.get(name, {}).get("status") == "healthy" and _all_heartbeats_after(health[name], since)
        for name in monitored
    )


def _all_heartbeats_after(component: Mapping[str, Any], moment: float) -> bool:
    """Whether all heartbeats are newer; a component's heartbeat is named `latest_..._heartbeat`, the database has none."""
    heartbeats = [value for name, value in component.items() if name.startswith("latest_")]
    return all(value and datetime.fromisoformat(value) >= datetime.fromtimestamp(moment, UTC) for value in heartbeats)
