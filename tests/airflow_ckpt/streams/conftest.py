"""What the tests of a stream's control need."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ckpt.kafka.offsets import Ends
from airflow_ckpt.streams import control as control_module
from airflow_ckpt.streams.preflight import Facts
from airflow_ckpt.streams.restart import FixedDelay
from tests.airflow_ckpt.streams.fakes import TEN_SECONDS, Deployment
from tests.airflow_ckpt.streams.samples import a_stream


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A stream of which preflight finds nothing bad, except another driver."""
    topic = Ends({0: 0}, {0: 1}, {0: 1})
    monkeypatch.setattr(control_module, "gather", lambda _, status: Facts(status, source={"orders_in": topic}))
    return Deployment(tmp_path, a_stream(restart=FixedDelay(3, TEN_SECONDS), stall_after=60))
