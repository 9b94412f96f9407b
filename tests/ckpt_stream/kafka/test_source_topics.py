"""Which topics a pattern means: the driver, Airflow and Spark must agree."""

from __future__ import annotations

import pytest

from airflow_ckpt.kafka.lag import topic_names
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.topics import INTERNAL, Topics, source_topics
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

KNOWN = ("orders_1", "orders_2", "others", *INTERNAL)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [(".*", ["orders_1", "orders_2", "others"]), ("orders_.", ["orders_1", "orders_2"]), ("orders", [])],
)
def test_a_pattern_means_whole_names_and_none_of_kafkas_own_topics(
    broker: FakeBroker, pattern: str, matching: list[str]
) -> None:
    """The first records of Kafka's own topics are usually deleted, which would be taken for lost records of the source."""
    for name in KNOWN:
        broker.topic(name, 2)
    assert source_topics(("named",), pattern, lambda: KNOWN) == matching
    assert topic_names(admin_client({}), (), pattern) == matching
    if matching:
        assert Topics({}).source_partitions((), pattern) == {name: [0, 1] for name in matching}


def test_topics_that_are_named_are_the_source_whatever_else_there_is() -> None:
    assert source_topics(("orders_2", "gone"), None, lambda: pytest.fail("not asked")) == ["gone", "orders_2"]
