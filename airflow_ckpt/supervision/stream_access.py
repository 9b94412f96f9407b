"""Everything that is needed to observe a stream: its declaration, its files, Kafka, and the runner of its drivers."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.runners.base import Runner
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.kafka.settings import Kafka


@dataclass(frozen=True)
class StreamAccess:
    """One stream with its connections resolved; without Airflow."""

    stream: Stream
    files: FsspecFiles
    #: librdkafka settings with secrets; None: do not ask Kafka.
    kafka: Kafka | None
    #: None: drivers cannot be started or observed from this machine.
    runner: Runner | None
