"""Reads how far a stream has read its source, for its status and for preflight: the checkpoint first, then Kafka.

In this order, Kafka's offsets can only be newer than the offsets in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from airflow_ckpt.kafka.lag import first_unread, source_ends, waiting_since
from airflow_ckpt.kafka.shared_client import shared_admin
from airflow_ckpt.streams.observation import PartitionLag, SourcePosition
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.kafka.settings import Kafka
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport, read_checkpoint
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.topic_ends import TopicEnds


def position_in_checkpoint(access: StreamAccess, *, for_start: bool) -> SourcePosition:
    """The position in the checkpoint and, for a start, everything else in the checkpoint that a start depends on.

    If the storage does not answer, that is a finding of preflight for a start, and an error for a status.
    """
    try:
        return SourcePosition(read_checkpoint(access.files, with_metadata=for_start, with_start=for_start))
    except OSError as e:
        if not for_start:
            raise
        return SourcePosition(checkpoint_error=e)


def with_source_ends(access: StreamAccess, position: SourcePosition, now: datetime, *, ages: bool) -> SourcePosition:
    """Add the ends of the source and, on request, the age of unread records; without Kafka settings, Kafka is not asked."""
    if access.kafka is None:
        return position
    config, checkpoint = access.stream.config, position.checkpoint or CheckpointReport()
    try:
        topics = source_ends(shared_admin(access.kafka), config.source, config.source_pattern)
        since = _unread_since(access.kafka, checkpoint, topics) if ages else None
    except KafkaUnreachable as e:
        return replace(position, kafka_error=str(e))
    lag = tuple(_lags(topics, checkpoint.committed_offsets, since, now))
    return replace(position, topics=topics, unread_since=since, lag=lag)


def with_ages(kafka: Kafka, position: SourcePosition) -> SourcePosition:
    """Add the age of unread records. Raises KafkaUnreachable."""
    if position.unread_since is not None or position.topics is None:
        return position
    since = _unread_since(kafka, position.checkpoint or CheckpointReport(), position.topics)
    return replace(position, unread_since=since)


def _unread_since(
    kafka: Kafka, checkpoint: CheckpointReport, topics: Mapping[str, TopicEnds | None]
) -> Mapping[tuple[str, int], float]:
    return waiting_since(kafka, first_unread(checkpoint.position, topics))


def _lags(
    topics: Mapping[str, TopicEnds | None],
    committed_offsets: Offsets,
    since: Mapping[tuple[str, int], float] | None,
    now: datetime,
) -> Iterator[PartitionLag]:
    """The unread records of each source partition, with their age if `since` is given."""
    for topic, ends in topics.items():
        for partition, stable in (ends.stable if ends else {}).items():
            committed = committed_offsets.get(topic, {}).get(str(partition))
            records = max(0, stable - committed) if committed is not None else None
            if committed is None and ends is not None and ends.earliest[partition] == stable:
                records = 0
            seconds: float | None = None
            if since is not None and records == 0:
                seconds = 0.0
            elif since is not None and records is not None and (topic, partition) in since:
                seconds = round(max(0.0, now.timestamp() - since[(topic, partition)]), 1)
            yield PartitionLag(topic, partition, committed, stable, records, seconds)
