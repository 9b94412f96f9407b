"""Which topics a pattern means: the driver, Airflow and Spark must agree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_ckpt.kafka.lag import topic_names
from ckpt_stream.topics import INTERNAL, Topics

pytestmark = pytest.mark.unit

KNOWN = ("orders_1", "orders_2", "others", *INTERNAL)


def admin() -> Any:
    topics = {name: SimpleNamespace(partitions={1: None, 0: None}) for name in KNOWN}
    return SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=topics))


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [(".*", ["orders_1", "orders_2", "others"]), ("orders_.", ["orders_1", "orders_2"]), ("orders", [])],
)
def test_a_pattern_means_whole_names_and_none_of_kafkas_own_topics(pattern: str, matching: list[str]) -> None:
    """Kafka's own have a deleted head more often than not, which would be taken for lost records of the source."""
    assert topic_names(admin(), (), pattern) == matching
    if matching:
        topics = Topics({"bootstrap.servers": "127.0.0.1:1"})
        topics._admin = admin()
        assert topics.partitions((), pattern) == {name: [0, 1] for name in matching}
