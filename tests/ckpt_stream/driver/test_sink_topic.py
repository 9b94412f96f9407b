"""The sink topic of a run, on a Kafka in memory: found at the start, and looked at before each batch."""

from __future__ import annotations

import pytest

from ckpt_stream.driver.sink_topic import SinkTopic, find_sink_topic
from ckpt_stream.errors import SinkRecreated, SinkRejected
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.settings.config import StreamConfig
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

SINK, DEAD = "orders-out", "orders-dead"


@pytest.fixture
def cluster(broker: FakeBroker) -> FakeBroker:
    """A sink of two partitions with one record in the second one, and an empty dead-letter topic."""
    broker.topic(SINK, 2, max_message_bytes="2000000").partitions[1].write(None, b"v")
    broker.topic(DEAD)
    return broker


def found(dead_letter_topic: str | None = None) -> SinkTopic:
    config = StreamConfig(
        name="orders", checkpoint="c", source=("orders",), sink=SINK, kafka={"bootstrap.servers": "b"},
        dead_letter_topic=dead_letter_topic, malformed="dead_letter" if dead_letter_topic else "skip", sink_id="shop",
    )  # fmt: skip
    return find_sink_topic(Topics({}), config)


def test_the_topic_of_the_start_is_known_by_its_id_and_its_largest_record(cluster: FakeBroker) -> None:
    topic = found()
    assert (topic.name, topic.id, topic.max_message_bytes) == (SINK, cluster.topics[SINK].id, 2_000_000)


@pytest.mark.parametrize("missing", [SINK, DEAD])
def test_a_run_does_not_begin_without_its_topics(cluster: FakeBroker, missing: str) -> None:
    del cluster.topics[missing]
    with pytest.raises(SinkRejected, match=missing):
        found(DEAD)


def test_the_ends_are_those_of_the_sink_and_of_the_dead_letter_topic(cluster: FakeBroker) -> None:
    assert found().ends() == {SINK: {"0": 0, "1": 1}}
    assert found(DEAD).ends() == {SINK: {"0": 0, "1": 1}, DEAD: {"0": 0}}


def test_the_ends_are_those_of_the_moment(cluster: FakeBroker) -> None:
    topic = found()
    cluster.partition(SINK).write(None, b"v")
    assert topic.ends() == {SINK: {"0": 1, "1": 1}}


def test_a_sink_that_was_created_again_while_the_stream_ran_is_refused(cluster: FakeBroker) -> None:
    topic = found()
    again = cluster.topic(SINK, 2)
    with pytest.raises(SinkRecreated, match=again.id) as refused:
        topic.ends()
    assert "ledger rebuild shop" in refused.value.helps


def test_a_sink_that_was_deleted_while_the_stream_ran_is_refused(cluster: FakeBroker) -> None:
    topic = found()
    del cluster.topics[SINK]
    with pytest.raises(SinkRecreated, match=SINK):
        topic.ends()
