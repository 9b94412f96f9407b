"""Launches as a hook makes them, without an Airflow database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk.bases.hook import BaseHook

from airflow_ckpt.hooks.connections import Connections, spark_target
from airflow_ckpt.hooks.launch import make_launch
from airflow_ckpt.hooks.settings import Settings
from airflow_ckpt.runners.base import Launch
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.launch_request import LaunchRequest
from tests.airflow_ckpt.hooks.launches import KAFKA, Kind, Make
from tests.airflow_ckpt.supervision.samples import a_stream


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    apps = tmp_path / "apps"
    apps.mkdir()
    (apps / "orders.py").write_text("print('orders')\n")
    return Settings(tmp_path / "work", (tmp_path / "first", apps), ("/jars/kafka.jar",), 10.0)


@pytest.fixture
def make(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(
        stream: Stream | None = None,
        *,
        kind: str = "process",
        kafka: Mapping[str, Any] = KAFKA,
        order: LaunchRequest | None = None,
        settings: Settings = settings,
        **spark: Any,
    ) -> Launch:
        known = Connection(conn_id="spark_default", **{"conn_type": "spark", "host": "local[*]", **spark})
        monkeypatch.setattr(BaseHook, "get_connection", staticmethod(lambda name: known))
        connections = Connections(kafka, spark_target(known, "spark_default"))
        runner: Any = Kind(kind)
        return make_launch(stream or a_stream(), order or LaunchRequest("t1"), connections, runner, settings)

    return make
