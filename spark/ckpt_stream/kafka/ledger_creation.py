"""Creates the ledger topic, at least as safe as the sink, and adds partitions when the stream has more lanes."""

from __future__ import annotations

from typing import Any

from ckpt_stream.errors import SinkError, SinkRejected
from ckpt_stream.kafka.admin_client import ASK_SECONDS
from ckpt_stream.kafka.client_errors import to_sink_error
from ckpt_stream.kafka.ledger_safety import replicas_of_new, settings_of_new
from ckpt_stream.kafka.topics import Topic, Topics
from ckpt_stream.protocol.deadline import Deadline

POLL_SECONDS = 0.02


def ensure_ledger(topics: Topics, name: str, lanes: int, sink: Topic) -> Topic:
    """Make sure that the ledger topic has at least so many partitions. A partition is never removed."""
    from confluent_kafka import KafkaException

    found = topics.find(name)
    if found is not None and found.partitions >= lanes:
        return found
    try:
        if found is None:
            _create(topics, name, lanes, sink)
        else:
            _widen(topics, name, lanes)
    except KafkaException as e:
        if e.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise _cannot_make(name, lanes, e) from e
    return _wait_for(topics, name, lanes)


def _create(topics: Topics, name: str, lanes: int, sink: Topic) -> None:
    from confluent_kafka.admin import NewTopic

    (as_sink,) = topics.durability(sink)
    replicas = replicas_of_new(as_sink, len(topics.admin.list_topics(timeout=ASK_SECONDS).brokers))
    settings = settings_of_new(as_sink, replicas)
    new = NewTopic(name, num_partitions=lanes, replication_factor=replicas, config=settings)
    topics.admin.create_topics([new], operation_timeout=ASK_SECONDS)[name].result()


def _widen(topics: Topics, name: str, lanes: int) -> None:
    from confluent_kafka.admin import NewPartitions

    topics.admin.create_partitions([NewPartitions(name, lanes)], operation_timeout=ASK_SECONDS)[name].result()


def _cannot_make(name: str, lanes: int, exception: Any) -> SinkError:
    error = exception.args[0]
    if error.name() == "INVALID_REPLICATION_FACTOR":
        return SinkError(
            f"The ledger topic {name} needs as many replicas as the sink has, and Kafka has too few brokers for that at the "
            f"moment: {error.str()}. What helps: start again when the brokers are back."
        )
    if error.name() in ("POLICY_VIOLATION", "INVALID_CONFIG"):
        return SinkRejected(
            f"Kafka refuses the settings of the ledger topic {name}: {error.str()}. What helps: create it with what this "
            "cluster allows, compacted and as safe as the sink: `kafka-topics.sh --bootstrap-server ... --create --topic "
            f"{name} --partitions {lanes} --config cleanup.policy=compact`."
        )
    return to_sink_error(exception, f"create the ledger topic {name}")


def _wait_for(topics: Topics, name: str, partitions: int) -> Topic:
    """Wait until Kafka lists a topic with its new partitions: brokers do not know of them at once."""

    def is_known() -> Topic | None:
        topic = topics.find(name)
        return topic if topic is not None and topic.partitions >= partitions else None

    topic = Deadline.after(ASK_SECONDS).wait_for(is_known, POLL_SECONDS)
    if topic is None:
        raise SinkError(
            f"The ledger topic {name} was created, but Kafka does not show it after {ASK_SECONDS:.0f} s. What helps: start again."
        )
    return topic
