"""What the tests of all operators need."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_ckpt.hooks.stream import StreamHook
from airflow_ckpt.streams.status import StreamStatus
from tests.airflow_ckpt.operators.fakes import FakeControl, Play


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Every connection to the stream shows these statuses."""

    def play(*statuses: StreamStatus | str, plans: Any = ()) -> FakeControl:
        control = FakeControl(*statuses)
        control.plans = list(plans)
        monkeypatch.setattr(StreamHook, "get_conn", lambda self: control)
        return control

    return play


@pytest.fixture(autouse=True)
def _no_pauses(slept: list[float]) -> None:
    """An operator's pauses cost no time."""
