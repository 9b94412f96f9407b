"""confluent-kafka's admin client, on a Kafka in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec, ResourceType

from tests.support.fake_kafka.broker import UNKNOWN_TOPIC, FakeBroker, FakePartition, FakeTopic
from tests.support.fake_kafka.errors import Answer


def metadata(broker: FakeBroker, topic: str | None) -> Any:
    """What every client answers to `list_topics`; a topic that is asked for and missing has an error."""
    broker.called("list_topics", topic)

    def described(name: str) -> Any:
        found = broker.topics.get(name)
        numbers = range(len(found.partitions)) if found else ()
        return SimpleNamespace(topic=name, partitions=dict.fromkeys(numbers), error=None if found else UNKNOWN_TOPIC)

    names = list(broker.topics) if topic is None else [topic]
    return SimpleNamespace(
        topics={name: described(name) for name in names}, brokers=dict.fromkeys(broker.brokers, None)
    )


NO_LEADER = KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found")


class FakeAdmin:
    def __init__(self, broker: FakeBroker, settings: Mapping[str, Any]) -> None:
        self.broker, self.settings = broker, settings

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return metadata(self.broker, topic)

    def poll(self, _seconds: float) -> int:
        return 0

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Answer]:
        def describe(name: str) -> Any:
            self.broker.called("describe_topics", name)
            found = self._found(name)
            in_sync = found.replicas if found.in_sync is None else found.in_sync
            partitions = [
                SimpleNamespace(id=number, replicas=_nodes(found.replicas), isr=_nodes(in_sync))
                for number in range(len(found.partitions))
            ]
            return SimpleNamespace(name=name, topic_id=found.id, partitions=partitions)

        return {name: Answer(lambda name=name: describe(name)) for name in topics.topic_names}

    def list_offsets(self, wanted: Mapping[Any, Any], *, isolation_level: Any, request_timeout: float) -> Any:
        assert wanted, "librdkafka refuses a question about no partition"
        committed_only = isolation_level == IsolationLevel.READ_COMMITTED
        first = type(OffsetSpec.earliest())
        self.broker.called(
            "list_offsets",
            "earliest" if isinstance(next(iter(wanted.values())), first) else "stable" if committed_only else "high",
        )

        def offset(partition: Any, spec: Any) -> Any:
            found = self.broker.topics.get(partition.topic)
            if found is None:
                raise KafkaException(NO_LEADER)
            if partition.partition >= len(found.partitions):
                raise KafkaException(UNKNOWN_TOPIC)
            log = found.partitions[partition.partition]
            end = log.stable if committed_only else log.high
            return SimpleNamespace(offset=log.low if isinstance(spec, first) else end)

        return {p: Answer(lambda p=p, spec=spec: offset(p, spec)) for p, spec in wanted.items()}

    def describe_configs(self, resources: Iterable[Any], *, request_timeout: float) -> dict[Any, Answer]:
        def settings(resource: Any) -> dict[str, Any]:
            self.broker.called("describe_configs", resource.name)
            is_topic = resource.restype == ResourceType.TOPIC
            found = self._found(resource.name).settings if is_topic else self.broker.broker_settings
            return {name: SimpleNamespace(name=name, value=value) for name, value in found.items()}

        return {resource: Answer(lambda r=resource: settings(r)) for resource in resources}

    def create_topics(self, topics: Iterable[Any], *, operation_timeout: float) -> dict[str, Answer]:
        def create(new: Any) -> None:
            self.broker.called("create_topics", new.topic)
            if new.topic in self.broker.topics:
                raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
            if new.replication_factor > len(self.broker.brokers):
                raise KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR))
            replicas = tuple(self.broker.brokers)[: new.replication_factor]
            self.broker.topic(new.topic, new.num_partitions, replicas=replicas).settings.update(new.config)

        return {new.topic: Answer(lambda new=new: create(new)) for new in topics}

    def create_partitions(self, topics: Iterable[Any], *, operation_timeout: float) -> dict[str, Answer]:
        def widen(new: Any) -> None:
            self.broker.called("create_partitions", new.topic)
            partitions = self._found(new.topic).partitions
            if new.new_total_count <= len(partitions):
                raise KafkaException(KafkaError(KafkaError.INVALID_PARTITIONS))
            partitions += [FakePartition() for _ in range(new.new_total_count - len(partitions))]

        return {new.topic: Answer(lambda new=new: widen(new)) for new in topics}

    def delete_topics(self, topics: Iterable[str], *, operation_timeout: float) -> dict[str, Answer]:
        def delete(name: str) -> None:
            self.broker.called("delete_topics", name)
            self._found(name)
            del self.broker.topics[name]

        return {name: Answer(lambda name=name: delete(name)) for name in topics}

    def _found(self, name: str) -> FakeTopic:
        if name not in self.broker.topics:
            raise KafkaException(UNKNOWN_TOPIC)
        return self.broker.topics[name]


def _nodes(ids: Iterable[int]) -> list[Any]:
    return [SimpleNamespace(id=each) for each in ids]
