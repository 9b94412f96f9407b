"""The sensor: what it waits for."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.sensors.progress import CheckpointProgressSensor
from tests.airflow_ckpt.operators.fakes import Play, a_context, deferred, make
from tests.airflow_ckpt.supervision.samples import a_status

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("values", "goal"),
    [
        ({"batches": 3}, {"batches": 3}),
        ({"batches": "3"}, {"batches": 3}),
        ({"batch": 0}, {"batch": 0}),
        ({"max_lag": 0}, {"max_lag": 0}),
        ({"drained": True}, {"drained": True, "ends": {"orders_in": {"0": 100}}}),
        ({"offsets": {"orders_in": {0: 5}}}, {"offsets": {"orders_in": {"0": 5}}}),
        ({"batches": 1, "max_lag": 5}, {"batches": 1, "max_lag": 5}),
    ],
)
def test_the_sensor_waits_for_everything_that_it_was_given(play: Play, values: dict[str, Any], goal: Any) -> None:
    play("RUNNING")
    trigger = deferred(lambda: make(CheckpointProgressSensor, deferrable=True, **values).execute(a_context()))
    assert trigger.goal == goal


def test_the_sensor_fails_at_once_when_the_stream_has_failed(play: Play, slept: list[float]) -> None:
    play(a_status("FAILED", reason="LedgerLost: batch 3"))
    told: list[Any] = []
    operator = make(CheckpointProgressSensor, batches=3, notify=lambda c: told.append(c["ckpt"]))
    with pytest.raises(AirflowFailException, match=r"FAILED.*LedgerLost: batch 3"):
        operator.execute(a_context())
    assert (slept, told[0]["event"], told[0]["stream"]) == ([], "failed", "orders")


def test_a_sensor_that_waits_for_nothing_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(BadArgument, match="batches, batch, offsets, max_lag, drained"):
        make(CheckpointProgressSensor)
