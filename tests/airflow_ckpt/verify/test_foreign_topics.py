"""A sink of another program, read from a Kafka in memory: where records may be gone or have no id, nothing is called clean."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from airflow_ckpt.exceptions import ScanStuck
from airflow_ckpt.verify import foreign
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED, Verdict
from tests.airflow_ckpt.verify.sink_in_memory import kinds
from tests.support.fake_kafka import FakeBroker, FakePartition
from tests.support.fake_kafka.consumer import FakeConsumer, Message

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "broker:1"}


@pytest.fixture
def topics(broker: FakeBroker) -> FakeBroker:
    """A source of five numbers, and a sink with a copy of each."""
    for topic in ("source", "sink"):
        fill(broker.topic(topic).partitions[0], *range(5))
    return broker


def fill(partition: FakePartition, *ids: object) -> None:
    for one in ids:
        partition.write(None if one is None else str(one).encode(), b"v")


def verdict(*, source: str | None = "source", **options: Any) -> Verdict:
    return foreign.verify_foreign(KAFKA, "sink", id_path="key", source=source, sequence=True, **options)


def test_a_sink_with_each_record_of_its_source_once_is_clean(topics: FakeBroker) -> None:
    found = verdict()
    assert (found.verdict, kinds(found)) == (CLEAN, [])
    assert (found.sink_committed, found.source_records, found.lost, found.duplicated, found.alien) == (5, 5, 0, 0, 0)


def truncate(topics: FakeBroker, topic: str) -> None:
    """Retention has deleted the first two records."""
    topics.partition(topic).low = 2


def compact(topics: FakeBroker, topic: str) -> None:
    """Compaction has removed a record in the middle."""
    topics.topics[topic].settings["cleanup.policy"] = "compact"
    topics.partition(topic).log[2] = None


def hold_back(topics: FakeBroker, topic: str) -> None:
    """An open transaction, far older than its timeout."""
    topics.partition(topic).hidden_from = 5
    topics.partition(topic).write(b"5", b"open", time.time() - 1000)


@pytest.mark.parametrize(
    ("topic", "happens", "kind"),
    [
        ("sink", truncate, "sink_truncated"),
        ("sink", compact, "sink_compacted"),
        ("source", truncate, "source_truncated"),
        ("source", compact, "source_compacted"),
    ],
)
def test_what_may_have_been_removed_is_unknown_and_neither_lost_nor_alien(
    topics: FakeBroker, topic: str, happens: Any, kind: str
) -> None:
    happens(topics, topic)
    found = verdict()
    assert (found.verdict, kinds(found)) == (UNKNOWN, [(kind, False)])
    assert (found.lost, found.alien) == ((None, 0) if topic == "sink" else (0, None))


@pytest.mark.parametrize("happens", [truncate, compact])
def test_holes_in_a_sink_of_which_records_may_be_gone_are_not_lost_records(topics: FakeBroker, happens: Any) -> None:
    """The numbers before the hole are later in the sink, as when a job was run again."""
    happens(topics, "sink")
    fill(topics.partition("sink"), -5)
    found = verdict(source=None)
    assert (found.verdict, found.lost) == (UNKNOWN, None)
    assert [violation for _, violation in kinds(found)] == [False]


@pytest.mark.parametrize("topic", ["sink", "source"])
def test_a_transaction_that_holds_readers_of_a_topic_back_is_a_violation(topics: FakeBroker, topic: str) -> None:
    hold_back(topics, topic)
    found = verdict()
    assert [(f.kind, f.topic) for f in found.findings] == [("open_transaction", topic)]
    assert (found.verdict, found.open_transactions) == (VIOLATED, 1)
    assert (found.sink_committed, found.source_records) == (5, 5), "what readers do not see is not counted"


def test_records_without_an_id_are_unknown_and_no_lost_ones(topics: FakeBroker) -> None:
    """The record without an id may be the one that seems lost, and closes the hole in the sequence."""
    topics.partition("sink").log[2] = None
    fill(topics.partition("sink"), None)
    found = verdict()
    assert (found.verdict, kinds(found)) == (UNKNOWN, [("no_id", False)])
    assert (found.sink_committed, found.lost) == (5, None)


def test_more_lost_records_than_there_are_without_an_id_are_a_violation(topics: FakeBroker) -> None:
    topics.partition("sink").log[1:3] = [None, None]
    fill(topics.partition("sink"), None)
    found = verdict()
    assert (found.verdict, found.lost) == (VIOLATED, 2)


def test_an_alien_record_may_be_one_of_the_source_without_an_id(topics: FakeBroker) -> None:
    topics.partition("source").log[4] = None
    fill(topics.partition("source"), None)
    found = verdict()
    assert (found.verdict, kinds(found), found.alien) == (UNKNOWN, [("no_id", False)], None)
    fill(topics.partition("sink"), 5)
    assert (verdict().verdict, verdict().alien) == (VIOLATED, 2)


@pytest.mark.parametrize("topic", ["sink", "source"])
def test_a_topic_that_is_not_there_is_unknown(topics: FakeBroker, topic: str) -> None:
    del topics.topics[topic]
    found = verdict()
    assert (found.verdict, kinds(found)) == (UNKNOWN, [("no_topic", False)])


def test_what_the_group_has_read_and_the_sink_lacks_is_lost_and_else_not_there_yet(topics: FakeBroker) -> None:
    fill(topics.partition("source"), 5, 6)
    assert kinds(verdict()) == [("not_there_yet", False)]
    topics.groups["job"] = {("source", 0): 6}
    found = verdict(group="job")
    assert (found.verdict, kinds(found), found.lost) == (VIOLATED, [("lost", True)], 1)
    topics.groups["job"] = {("source", 0): 5}
    assert verdict(group="job").verdict == CLEAN


def test_a_group_that_has_committed_nothing_proves_nothing(topics: FakeBroker) -> None:
    fill(topics.partition("source"), 5)
    found = verdict(group="job")
    assert (found.verdict, kinds(found)) == (UNKNOWN, [("no_group_offsets", False)])


def test_what_the_source_got_while_the_sink_was_read_is_not_missed(
    topics: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that came to the source after the look at its end may reach the sink after it was read."""
    read = foreign.read_range

    def source_goes_on(kafka: Any, topic: str, *args: Any) -> None:
        read(kafka, topic, *args)
        if topic == "sink":
            fill(topics.partition("source"), 5)

    monkeypatch.setattr(foreign, "read_range", source_goes_on)
    found = verdict()
    assert (found.verdict, kinds(found)) == (CLEAN, [])


def test_what_the_sink_got_after_the_look_at_its_end_is_left_out(
    topics: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client hands over what it has fetched: half of what is written meanwhile would seem to be more than there is."""
    look = foreign.check_open

    def sink_goes_on(kafka: Any, topic: str, *args: Any) -> Any:
        if topic == "sink":
            fill(topics.partition("sink"), 9)
        return look(kafka, topic, *args)

    monkeypatch.setattr(foreign, "check_open", sink_goes_on)
    found = verdict()
    assert (found.verdict, found.sink_committed, kinds(found)) == (CLEAN, 5, [])


def test_more_ids_than_memory_may_hold_are_unknown(topics: FakeBroker) -> None:
    found = verdict(max_ids=3)
    assert (found.verdict, kinds(found)) == (UNKNOWN, [("too_many_ids", False)])


def test_an_error_of_kafka_among_the_records_ends_the_verification(
    topics: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: FakeConsumer, count: int, seconds: float) -> list[Message]:
        where = next(iter(self.position([TopicPartition("sink", 0)])))
        return [Message(where, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))]

    monkeypatch.setattr(FakeConsumer, "consume", refused)
    with pytest.raises(ScanStuck):
        verdict()
