"""Builds the sink of a run from the stream's configuration and the state in which the run found ledger and checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt_stream.driver.at_least_once import at_least_once_writer
from ckpt_stream.driver.exactly_once import ExactlyOnceWriter
from ckpt_stream.driver.lane_spec import LaneSettings
from ckpt_stream.driver.sink import Sink
from ckpt_stream.driver.sink_topic import SinkTopic
from ckpt_stream.driver.start_of_run import Start
from ckpt_stream.kafka.java_settings import java_settings
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.protocol.ledger.batch_to_write import SinkIdentity
from ckpt_stream.protocol.run_files.run_record import RunRecord
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.stream_settings import AT_LEAST_ONCE
from ckpt_stream.spark.hadoop_files import CheckpointFiles


def new_sink(
    files: CheckpointFiles,
    kafka: Mapping[str, Any],
    config: StreamConfig,
    record: RunRecord,
    identity: SinkIdentity,
    topic: SinkTopic,
    start: Start,
    *,
    ignore_ledger: bool = False,
) -> Sink:
    """The sink of a run that begins like this."""
    producer_settings = client_settings(kafka)
    if topic.max_message_bytes:
        producer_settings.setdefault("message.max.bytes", topic.max_message_bytes)
    settings = LaneSettings(
        sink=identity,
        adopted=start.adopted,
        kafka=producer_settings,
        run_id=record.run,
        application=config.application_version,
        transaction_timeout_ms=int(config.transaction_timeout * 1000),
        history=config.ledger_history,
        dead_letter_topic=config.dead_letter_topic,
        audit=config.audit == "record",
        driver_pids=driver_pids(record),
        ignore_ledger=ignore_ledger,
    )
    exactly_once = config.guarantee != AT_LEAST_ONCE
    write = ExactlyOnceWriter() if exactly_once else at_least_once_writer(java_settings(kafka))
    return Sink(files, settings, write, config.min_pause, topic.ends, start.unfinished)


def driver_pids(record: RunRecord) -> tuple[int, ...]:
    """The processes of a run's driver: its JVM and its Python process."""
    return int(record.driver["jvm_pid"]), int(record.driver["pid"])
