"""Collects what preflight looks at: checkpoint, source, sink, ledger, retention, brokers' limits."""

from __future__ import annotations

from typing import Any

from airflow_ckpt.checkpoint.reader import Checkpoint, read_checkpoint
from airflow_ckpt.kafka.clients import shared_admin
from airflow_ckpt.kafka.lag import first_unread, source_ends, waiting_since
from airflow_ckpt.kafka.offsets import Ends, KafkaUnreachable, broker_settings, partitions_of, topic_settings
from airflow_ckpt.streams.observe import Sources
from airflow_ckpt.streams.preflight import Facts
from airflow_ckpt.streams.status import StreamStatus
from ckpt_stream.config import AT_LEAST_ONCE
from ckpt_stream.decision import Intent
from ckpt_stream.errors import StreamError
from ckpt_stream.security import client_settings
from ckpt_stream.start_of_run import compare
from ckpt_stream.topics import Topics


def gather(sources: Sources, status: StreamStatus) -> Facts:
    """Ask checkpoint, Kafka and ledger once. What does not answer becomes a finding, not an exception."""
    try:
        checkpoint: Checkpoint | None = read_checkpoint(sources.files, with_start=True)
        checkpoint_error = ""
    except OSError as e:
        checkpoint, checkpoint_error = None, f"The checkpoint {sources.stream.checkpoint} cannot be read: {e}."
    if sources.kafka is None:
        return Facts(status, checkpoint, checkpoint_error, kafka_error="Kafka was not asked.")
    try:
        return _with_kafka(sources, status, checkpoint, checkpoint_error)
    except KafkaUnreachable as e:
        return Facts(status, checkpoint, checkpoint_error, kafka_error=str(e))


def _with_kafka(sources: Sources, status: StreamStatus, checkpoint: Checkpoint | None, error: str) -> Facts:
    config = sources.stream.config
    kafka = client_settings(sources.kafka or {})
    admin = shared_admin(kafka)
    ends = source_ends(admin, config.source, config.source_pattern)
    wanted = [config.sink, *([config.dead_letter_topic] if config.dead_letter_topic else [])]
    missing = [topic for topic in wanted if partitions_of(admin, topic) is None]
    offsets = checkpoint.position if checkpoint else {}
    refusal = None
    if config.guarantee != AT_LEAST_ONCE and config.sink not in missing and not error:
        refusal = _reconcile(sources, kafka)
    return Facts(
        status,
        checkpoint,
        error,
        source=ends,
        missing_topics=missing,
        retention_ms={topic: _retention(admin, topic, end) for topic, end in ends.items()},
        unread_since=waiting_since(kafka, first_unread(offsets, ends)),
        ledger_refusal=refusal,
        transaction_max_ms=_number(broker_settings(admin).get("transaction.max.timeout.ms")),
    )


def _retention(admin: Any, topic: str, ends: Ends | None) -> int | None:
    settings = topic_settings(admin, topic) if ends is not None else {}
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return None
    return _number(settings.get("retention.ms"))


def _reconcile(sources: Sources, kafka: dict[str, Any]) -> StreamError | None:
    """What the driver would say about ledger and checkpoint; reads only."""
    config = sources.stream.config
    topics = Topics(kafka)
    try:
        sink = topics.get(config.sink, "sink")
        intent = Intent(config.sink_id, "", config.lanes, 0, "", config.sink, sink.id)
        compare(sources.files, topics, kafka, intent, adopt_ledger=config.start == "ledger")
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
