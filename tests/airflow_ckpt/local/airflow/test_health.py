"""When Airflow counts as healthy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_ckpt.local.airflow.health import is_healthy

pytestmark = pytest.mark.unit

STARTED = datetime(2026, 11, 17, 12, 0, 0, tzinfo=UTC)
BEFORE, AFTER = "2026-11-17T11:59:59.500000+00:00", "2026-11-17T12:00:00.500000+00:00"


def answer(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the endpoint says when all is well, but for the changes."""
    return {
        "metadatabase": {"status": "healthy"},
        "scheduler": {"status": "healthy", "latest_scheduler_heartbeat": AFTER},
        "triggerer": {"status": "healthy", "latest_triggerer_heartbeat": AFTER},
        "dag_processor": {"status": "healthy", "latest_dag_processor_heartbeat": AFTER},
        **changed,
    }


def test_it_is_healthy_when_every_component_says_so() -> None:
    assert is_healthy(answer(), since=STARTED.timestamp())


def test_no_answer_is_not_healthy() -> None:
    assert not is_healthy({}, since=STARTED.timestamp(), monitored=())


@pytest.mark.parametrize("name", ["metadatabase", "scheduler", "triggerer", "dag_processor"])
def test_one_unhealthy_component_is_enough_to_be_unhealthy(name: str) -> None:
    assert not is_healthy(answer(**{name: {"status": "unhealthy"}}), since=STARTED.timestamp())


def test_a_component_that_never_started_is_unhealthy() -> None:
    never = {"status": None, "latest_triggerer_heartbeat": None}

    assert not is_healthy(answer(triggerer=never), since=STARTED.timestamp())


def test_the_heartbeat_of_a_killed_predecessor_does_not_count() -> None:
    predecessor = {"status": "healthy", "latest_scheduler_heartbeat": BEFORE}

    assert not is_healthy(answer(scheduler=predecessor), since=STARTED.timestamp())
