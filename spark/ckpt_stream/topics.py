"""What the driver asks Kafka about topics: is it there, which one is it, how many partitions; and makes the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.errors import SinkError, SinkRejected
from ckpt_stream.kafka_errors import patiently, sink_error
from ckpt_stream.ledger_safety import Durability, replicas_of_new, settings_of_new

ASK_SECONDS = 30.0
#: Longer than a login takes; a question that is not answered by then may never be.
LOOK_SECONDS = 2.0
#: A marker reaches its topic within milliseconds, unless a broker is away.
SETTLE_SECONDS = 3.0
#: Kafka's own topics, which Spark leaves out of every pattern; librdkafka's metadata does not tell them apart.
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True)
class Topic:
    name: str
    #: Changes when a topic is deleted and made again.
    id: str
    partitions: int
    #: The brokers of each partition.
    replicas: tuple[tuple[int, ...], ...] = ()
    #: Partitions of which not every replica is in sync.
    incomplete: frozenset[int] = frozenset()


class Topics:
    """An admin client for one run of the driver."""

    def __init__(self, kafka: Mapping[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient

        self._lost: list[Any] = []
        settings: dict[str, Any] = {**kafka, "reconnect.backoff.ms": 10, "error_cb": _newest(self._lost)}
        self._admin: Any = AdminClient(settings)
        self._partitions: dict[str, int] = {}

    def close(self) -> None:
        """Let the client go."""
        self._admin = None

    def find(self, name: str) -> Topic | None:
        from confluent_kafka import KafkaException, TopicCollection

        try:
            found = patiently(
                lambda: self._answer(
                    self._admin.describe_topics(TopicCollection([name]), request_timeout=ASK_SECONDS)[name]
                ),
                ASK_SECONDS,
            )
        except KafkaException as e:
            error = e.args[0]
            if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                return None
            if error.name() == "_TIMED_OUT" and self._lost:
                error = self._lost[-1]  # why there was no answer
            raise sink_error(error, f"describe the topic {name}") from e
        self._partitions[name] = len(found.partitions)
        partitions = sorted(found.partitions, key=lambda p: p.id)
        replicas = tuple(tuple(broker.id for broker in p.replicas) for p in partitions)
        incomplete = frozenset(p.id for p in partitions if len(p.isr) < len(p.replicas))
        return Topic(name, str(found.topic_id), len(partitions), replicas, incomplete)

    def _answer(self, future: Any) -> Any:
        """The answer; or, before the time is over, that Kafka does not know user or password.

        librdkafka goes on trying such a login, and in the end says only that there was no answer.
        """
        from confluent_kafka import KafkaException

        self._lost.clear()
        while True:
            try:
                return future.result(timeout=LOOK_SECONDS)
            except TimeoutError:
                self._admin.poll(0)
                if self._lost and self._lost[-1].name() == "_AUTHENTICATION":
                    raise KafkaException(self._lost[-1]) from None

    def get(self, name: str, role: str) -> Topic:
        topic = self.find(name)
        if topic is None:
            raise SinkRejected(
                f"The {role} topic {name!r} does not exist. Nothing was written. What helps: create it with the partitions "
                f"and replication it should have, e.g. `kafka-topics.sh --create --topic {name} --partitions 4`, or "
                "correct its name."
            )
        return topic

    def look(self, sink: str, *others: str) -> tuple[Topic | None, dict[str, dict[str, int]]]:
        """The sink as it is now, and where it and other topics end: two questions, asked at once."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicCollection

        partitions = {name: range(self._partitions.get(name, 0)) for name in (sink, *others)}

        def ask() -> tuple[Any, dict[str, dict[str, int]]]:
            described = self._admin.describe_topics(TopicCollection([sink]), request_timeout=ASK_SECONDS)[sink]
            listed = self._offsets(partitions, IsolationLevel.READ_UNCOMMITTED)
            ends = {topic: {str(p): offset for p, offset in found.items()} for topic, found in listed.items()}
            return described.result(), ends

        try:
            found, ends = patiently(ask, ASK_SECONDS)
        except KafkaException as e:
            if e.args[0].name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
                return None, {}
            raise sink_error(e, f"look at the topic {sink}") from e
        topic = Topic(sink, str(found.topic_id), len(found.partitions))
        if topic.partitions != self._partitions.get(sink):
            # Partitions were added: ask once more, for all of them.
            self._partitions[sink] = topic.partitions
            return self.look(sink, *others)
        return topic, ends

    def settle(self, name: str) -> bool:
        """Wait until readers see all that is in the topic at this moment; False if a transaction holds them back for longer.

        The end first and then, again and again, how far readers see: a stream that goes on is not waited for.
        """
        from confluent_kafka import IsolationLevel

        deadline = time.monotonic() + SETTLE_SECONDS
        ends = self._ends(name, IsolationLevel.READ_UNCOMMITTED)
        while True:
            stable = self._ends(name, IsolationLevel.READ_COMMITTED)
            if all(stable.get(partition, 0) >= end for partition, end in ends.items()):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)

    def _ends(self, name: str, isolation: Any) -> Mapping[int, int]:
        from confluent_kafka import KafkaException

        partitions = {name: range(self._partitions.get(name, 0))}
        try:
            found = patiently(lambda: self._offsets(partitions, isolation), ASK_SECONDS)
        except KafkaException as e:
            raise sink_error(e, f"look at the topic {name}") from e
        return found.get(name, {})

    def _offsets(
        self, partitions: Mapping[str, Iterable[int]], isolation: Any, *, first: bool = False
    ) -> dict[str, dict[int, int]]:
        """Where these partitions end or, if asked, where they begin."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        which = spec.earliest() if first else spec.latest()
        asked = {TopicPartition(topic, p): which for topic, numbers in partitions.items() for p in numbers}
        listed = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=ASK_SECONDS)
        found: dict[str, dict[int, int]] = {}
        for partition, future in listed.items():
            found.setdefault(partition.topic, {})[partition.partition] = future.result().offset
        return found

    def max_message_bytes(self, name: str) -> int | None:
        """The largest record batch that a topic takes; None when this user may not ask."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            entries = self._admin.describe_configs([resource], request_timeout=ASK_SECONDS)[resource].result()
        except KafkaException:
            return None
        entry = entries.get("max.message.bytes")
        return int(entry.value) if entry is not None and entry.value else None

    def durability(self, *topics: Topic) -> list[Durability]:
        """What decides whether these topics keep what they are given; without settings when this user may not ask."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]

        def ask() -> list[dict[str, str] | None]:
            futures = self._admin.describe_configs(resources, request_timeout=ASK_SECONDS)
            return [_settings(futures[resource]) for resource in resources]

        try:
            # The topics were found; a broker that has not heard of a new one yet is asked again.
            settings = patiently(ask, ASK_SECONDS, ("UNKNOWN_TOPIC_OR_PART",))
        except KafkaException as e:
            raise sink_error(e, f"describe the settings of {', '.join(t.name for t in topics)}") from e
        return [Durability(t.name, t.replicas, found, t.incomplete) for t, found in zip(topics, settings, strict=True)]

    def ensure_ledger(self, name: str, lanes: int, sink: Topic) -> Topic:
        """Make the ledger topic, at least as safe as the sink, or widen it; a partition once made stays."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewPartitions, NewTopic

        topic = self.find(name)
        try:
            if topic is None:
                (as_sink,) = self.durability(sink)
                replicas = replicas_of_new(as_sink, len(self._admin.list_topics(timeout=ASK_SECONDS).brokers))
                settings = settings_of_new(as_sink, replicas)
                new = NewTopic(name, num_partitions=lanes, replication_factor=replicas, config=settings)
                self._admin.create_topics([new], operation_timeout=ASK_SECONDS)[name].result()
            elif topic.partitions < lanes:
                self._admin.create_partitions([NewPartitions(name, lanes)], operation_timeout=ASK_SECONDS)[
                    name
                ].result()
            else:
                return topic
        except KafkaException as e:
            if e.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise self._cannot_make(name, lanes, e) from e
        return self._wait_for(name, lanes)

    def _cannot_make(self, name: str, lanes: int, exception: Any) -> SinkError:
        error = exception.args[0]
        if error.name() == "INVALID_REPLICATION_FACTOR":
            return SinkError(
                f"The ledger topic {name} is to have as many replicas as the sink, and Kafka has too few brokers for that at "
                f"the moment: {error.str()}. What helps: start again when the brokers are back."
            )
        if error.name() in ("POLICY_VIOLATION", "INVALID_CONFIG"):
            return SinkRejected(
                f"Kafka refuses the settings of the ledger topic {name}: {error.str()}. What helps: create it with what this "
                "cluster allows, compacted and as safe as the sink: `kafka-topics.sh --bootstrap-server ... --create --topic "
                f"{name} --partitions {lanes} --config cleanup.policy=compact`."
            )
        return sink_error(exception, f"make the ledger topic {name}")

    def _wait_for(self, name: str, partitions: int) -> Topic:
        """A topic just made or widened is not known to every broker at once."""
        deadline = time.monotonic() + ASK_SECONDS
        while (topic := self.find(name)) is None or topic.partitions < partitions:
            if time.monotonic() > deadline:
                raise SinkError(
                    f"The ledger topic {name} was made, but Kafka does not show it after {ASK_SECONDS:.0f} s."
                )
            time.sleep(0.02)
        return topic

    def delete(self, name: str) -> None:
        from confluent_kafka import KafkaException

        try:
            self._admin.delete_topics([name], operation_timeout=ASK_SECONDS)[name].result()
        except KafkaException as e:
            raise sink_error(e, f"delete the topic {name}") from e

    def partitions(self, names: tuple[str, ...], pattern: str | None) -> dict[str, list[int]]:
        """The partitions of the source: the topics named, or those that match."""
        import re

        from confluent_kafka import KafkaException

        try:
            metadata = self._admin.list_topics(timeout=ASK_SECONDS)
        except KafkaException as e:
            raise sink_error(e, "list the topics") from e
        matching = [t for t in metadata.topics if pattern and t not in INTERNAL and re.fullmatch(pattern, t)]
        wanted = matching if pattern else list(names)
        if missing := [t for t in wanted if t not in metadata.topics] or (
            ["any topic that matches"] if not wanted else []
        ):
            raise SinkRejected(
                f"The source has no topic {', '.join(missing)}{' ' + repr(pattern) if pattern else ''}. What helps: create "
                "it, or correct the name."
            )
        return {t: sorted(metadata.topics[t].partitions) for t in sorted(wanted)}

    def earliest(self, partitions: Mapping[str, list[int]]) -> dict[str, dict[int, int]]:
        """The first offset that each partition holds."""
        from confluent_kafka import IsolationLevel, KafkaException

        if not any(partitions.values()):
            return {}
        isolation = IsolationLevel.READ_UNCOMMITTED
        try:
            return patiently(lambda: self._offsets(partitions, isolation, first=True), ASK_SECONDS)
        except KafkaException as e:
            raise sink_error(e, f"ask where {', '.join(sorted(partitions))} begin") from e


def _settings(future: Any) -> dict[str, str] | None:
    from confluent_kafka import KafkaException

    try:
        return {name: str(entry.value) for name, entry in future.result().items()}
    except KafkaException as e:
        if e.args[0].name() in ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"):
            return None
        raise


def _newest(lost: list[Any]) -> Callable[[Any], None]:
    """Keeps the last reason for which a connection was lost. It knows only the list, or the client would live for ever."""

    def keep(error: Any) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":  # which comes after each reason and names none
            lost[:] = [error]

    return keep
