"""Reads the conditions of a start for preflight, besides the status: sink, ledger, retention, limits of the brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_ckpt.kafka.shared_client import shared_admin
from airflow_ckpt.streams.preflight import StartConditions
from airflow_ckpt.supervision.observing import LookBeforeStart
from airflow_ckpt.supervision.source_position import with_ages
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import KafkaUnreachable, StreamError
from ckpt_stream.kafka.ask_topic_ends import partitions_of
from ckpt_stream.kafka.ledger_comparison import compare_ledger
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.kafka.topic_settings import broker_settings, cleanup_policy, topic_settings
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.ledger.batch_to_write import SinkIdentity
from ckpt_stream.protocol.settings.stream_settings import AT_LEAST_ONCE
from ckpt_stream.protocol.topic_ends import TopicEnds


def read_start_conditions(access: StreamAccess, look: LookBeforeStart) -> StartConditions:
    """Add the conditions of a start to an observation. If Kafka does not answer, that becomes a finding, not an exception."""
    position = look.seen.position
    found = StartConditions(look.status, position, look.seen.now.timestamp())
    if access.kafka is None or position.topics is None:
        return found
    try:
        return _with_kafka(
            access, client_settings(access.kafka), replace(found, position=with_ages(access.kafka, position))
        )
    except KafkaUnreachable as e:
        return replace(found, position=replace(position, topics=None, kafka_error=str(e)))


def _with_kafka(access: StreamAccess, kafka: dict[str, Any], found: StartConditions) -> StartConditions:
    """Add the conditions that come from Kafka: sink, ledger, retention and limits of the brokers."""
    config, admin = access.stream.config, shared_admin(kafka)
    wanted = [config.sink, *([config.dead_letter_topic] if config.dead_letter_topic else [])]
    missing = [topic for topic in wanted if partitions_of(admin, topic) is None]
    refusal = None
    can_compare = config.sink not in missing and found.position.checkpoint_error is None
    if config.guarantee != AT_LEAST_ONCE and can_compare:
        refusal = _ledger_refusal(access, kafka)
    return replace(
        found,
        missing_topics=missing,
        retention_ms={topic: _retention(admin, topic, ends) for topic, ends in (found.position.topics or {}).items()},
        ledger_refusal=refusal,
        transaction_max_ms=_number(broker_settings(admin).get("transaction.max.timeout.ms")),
    )


def _retention(admin: Any, topic: str, ends: TopicEnds | None) -> int | None:
    settings = topic_settings(admin, topic) if ends is not None else {}
    if "delete" not in cleanup_policy(settings):
        return None
    return _number(settings.get("retention.ms"))


def _ledger_refusal(access: StreamAccess, kafka: dict[str, Any]) -> StreamError | None:
    """The refusal that the driver would raise because of ledger and checkpoint; this only reads."""
    config = access.stream.config
    topics = Topics(kafka)
    try:
        sink = topics.get(config.sink, "sink")
        identity = SinkIdentity(config.sink_id, config.lanes, config.sink, sink.id)
        compare_ledger(access.files, topics, kafka, identity, adopt_ledger=config.start == "ledger")
    except StreamError as e:
        return e
    finally:
        topics.close()
    return None


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
