"""Plain reading and writing of topics, for tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ckpt_stream.protocol.deadline import Deadline
from tests.support.waiting import wait_for

Config = Mapping[str, Any]


class Record(NamedTuple):
    """One record as a consumer saw it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def create_topic(config: Config, name: str, partitions: int = 1, **settings: str | int) -> str:
    """Create a topic with a unique name that begins with `name`; `retention_ms=1` stands for `retention.ms`."""
    unique = f"{name}-{uuid.uuid4().hex[:8]}"
    topic = NewTopic(
        unique,
        num_partitions=partitions,
        # The broker's own number of copies.
        replication_factor=-1,
        config={setting.replace("_", "."): str(value) for setting, value in settings.items()},
    )
    admin = AdminClient(dict(config))
    wait_for(lambda: _was_created(admin, topic), f"a broker that takes topic {unique}")
    return unique


def _was_created(admin: AdminClient, topic: NewTopic) -> bool:
    """False while Kafka counts no broker as alive, as after the whole machine has stood still for seconds."""
    try:
        admin.create_topics([topic])[topic.topic].result(timeout=30)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in error.args[0].str():
            return False
        raise
    return True


def recreate_topic(config: Config, topic: str, partitions: int = 1) -> None:
    """Delete a topic and make it again under the same name: it has another id then, and is empty."""
    admin = AdminClient(dict(config))
    admin.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(config: Config, topic: str, records: Iterable[tuple[bytes | str | None, bytes | str | None]]) -> None:
    """Write key-value pairs and wait until every one of them is acknowledged."""
    failures: list[Any] = []
    producer = Producer({"acks": "all", "enable.idempotence": True, **config})
    for key, value in records:
        producer.produce(topic, value, key, on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
    unacknowledged = producer.flush(60)
    assert not failures, failures
    assert unacknowledged == 0, f"{unacknowledged} records were not acknowledged within 60 s"


def read_all(config: Config, topic: str, isolation: str = "read_committed") -> list[Record]:
    """All records up to the last stable offset (read_committed) or the high watermark (read_uncommitted) of now.

    It reads until its position reaches that end: an end-of-partition event also comes when an open transaction blocks.
    """
    reader = Consumer(
        {
            "group.id": f"read-all-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            **config,
        }
    )
    try:
        if isolation == "read_committed":
            _settle(config, topic)
        starts, ends = _range(reader, topic)
        reader.assign(starts)
        records: list[Record] = []
        deadline = Deadline.after(60)
        while behind := _behind(reader, ends):
            assert not deadline.passed, f"not read within 60 s: {behind} of {ends}"
            message = reader.poll(0.2)
            if message is None:
                continue
            assert message.error() is None, message.error()
            # What was written after we looked at the end does not count.
            if message.offset() < ends[message.partition()]:
                headers = tuple(message.headers() or ())
                records.append(Record(message.partition(), message.offset(), message.key(), message.value(), headers))
    finally:
        reader.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _settle(config: Config, topic: str, seconds: float = 3.0) -> None:
    """A commit is answered before its markers are in every partition: give them a moment, unless one stays open."""
    from ckpt_stream.kafka.admin_client import admin_client
    from ckpt_stream.kafka.ask_topic_ends import topic_ends

    admin = admin_client(config)

    def settled() -> bool:
        ends = topic_ends(admin, topic)
        return ends is None or not ends.held_back

    Deadline.after(seconds).wait_for(settled, 0.02)


def _range(reader: Consumer, topic: str) -> tuple[list[TopicPartition], dict[int, int]]:
    """Where to begin, and the end of each partition that is not empty."""
    starts, ends = [], {}
    for partition in reader.list_topics(topic, timeout=30).topics[topic].partitions:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=30, cached=False)
        if low < high:
            starts.append(TopicPartition(topic, partition, low))
            ends[partition] = high
    return starts, ends


def _behind(reader: Consumer, ends: Mapping[int, int]) -> dict[int, int]:
    """The positions that have not reached the end. Nothing read yet counts as behind, whatever the number."""
    positions = {tp.partition: tp.offset for tp in reader.position(reader.assignment())}
    return {
        partition: positions.get(partition, OFFSET_INVALID)
        for partition, end in ends.items()
        if positions.get(partition, OFFSET_INVALID) < end
    }


def group_offsets(config: Config, group: str, topic: str) -> dict[int, int]:
    """What a consumer group has committed, as Kafka's own tools see it."""
    with Consumer({**config, "group.id": group}) as consumer:
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=30)
    return {partition.partition: partition.offset for partition in found if partition.offset >= 0}
