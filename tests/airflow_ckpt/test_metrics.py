"""A stream's numbers go to Airflow's own metrics; what is not known is not sent as 0."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat import sdk

from airflow_ckpt.metrics import count, report
from tests.airflow_ckpt.supervision.samples import a_status

pytestmark = pytest.mark.unit


class Stats:
    sent: dict[str, Any]

    @classmethod
    def gauge(cls, name: str, value: float, tags: dict[str, str]) -> None:
        cls.sent[name] = (value, tags["stream"])

    @classmethod
    def incr(cls, name: str, tags: dict[str, str]) -> None:
        cls.sent[name] = tags["stream"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    Stats.sent = {}
    monkeypatch.setattr(sdk, "Stats", Stats, raising=False)
    return Stats.sent


def test_lag_age_batch_and_whether_it_is_broken_are_gauges_of_the_stream(sent: dict[str, Any]) -> None:
    report(a_status(lag_records=0, lag_seconds=1.5, age_seconds=3.0, batch=7))
    assert sent == {
        "airflow_ckpt.lag_records": (0, "orders"),
        "airflow_ckpt.lag_seconds": (1.5, "orders"),
        "airflow_ckpt.last_commit_age_seconds": (3.0, "orders"),
        "airflow_ckpt.committed_batch": (7, "orders"),
        "airflow_ckpt.broken": (0, "orders"),
    }


@pytest.mark.parametrize("state", ["FAILED", "LOST", "STALLED"])
def test_what_is_not_known_is_not_sent(sent: dict[str, Any], state: str) -> None:
    report(a_status(state))
    assert sent == {"airflow_ckpt.broken": (1, "orders")}


def test_events_are_counted_by_stream(sent: dict[str, Any]) -> None:
    count("resumed", "orders")
    assert sent == {"airflow_ckpt.resumed": "orders"}
