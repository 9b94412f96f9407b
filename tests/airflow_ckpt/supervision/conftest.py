"""What the tests of a stream's control need, and a Kafka in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ckpt.streams.restart_strategies import FixedDelay
from airflow_ckpt.supervision import control as control_module
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.fakes import TEN_SECONDS, Deployment
from tests.airflow_ckpt.supervision.samples import a_stream, start_with
from tests.fixtures.fake_kafka import broker, clock

__all__ = ["broker", "clock", "world"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """A stream of which preflight finds nothing bad, except another driver."""
    topic = TopicEnds({0: 0}, {0: 1}, {0: 1})
    monkeypatch.setattr(
        control_module,
        "read_start_conditions",
        start_with(topics={"orders_in": topic}),
    )
    return Deployment(tmp_path, a_stream(restart=FixedDelay(3, TEN_SECONDS), stall_after=60))
