"""Kafka clients that many streams share."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from airflow_ckpt.kafka import shared_client
from airflow_ckpt.kafka.shared_client import KEEP, shared_admin

pytestmark = pytest.mark.unit


def settings(port: int) -> dict[str, str]:
    return {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": "0"}


def test_the_same_settings_give_the_same_client() -> None:
    first = shared_admin(settings(1))
    assert shared_admin(settings(1)) is first
    assert shared_admin(settings(2)) is not first


def test_no_more_clients_are_kept_than_a_deployment_has_clusters() -> None:
    first = shared_admin(settings(1))
    for port in range(2, KEEP + 3):
        shared_admin(settings(port))
    assert shared_admin(settings(1)) is not first


class Idle:
    """As librdkafka's client: it has the length of its queue, so an idle one counts as false."""

    def __len__(self) -> int:
        return 0


def test_a_client_that_is_idle_is_shared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_client, "_clients", OrderedDict())
    monkeypatch.setattr(shared_client, "admin_client", lambda kafka: Idle())
    assert shared_admin(settings(9)) is shared_admin(settings(9))
