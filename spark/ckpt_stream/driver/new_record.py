"""The run record of a run that begins."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ckpt_stream.machine.process_identity import this_driver
from ckpt_stream.protocol.run_files.run_record import RunRecord, run_name
from ckpt_stream.protocol.settings.config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def new_record(spark: SparkSession, config: StreamConfig) -> RunRecord:
    """The record of a run that begins now, in this process, without the secrets in its configuration."""
    context = spark.sparkContext
    token = config.token or secrets.token_hex(4)
    jvm: Any = spark._jvm
    settings = asdict(config)
    settings["kafka"] = {"bootstrap.servers": config.kafka["bootstrap.servers"]}
    del settings["accepted_loss"]  # a user accepts a loss for one run; it must not apply to the next run
    return RunRecord(
        run=run_name(datetime.now(UTC), token),
        stream=config.name,
        token=token,
        driver=this_driver(int(jvm.java.lang.ProcessHandle.current().pid())),
        spark={"application_id": context.applicationId, "ui": context.uiWebUrl, "version": context.version},
        settings=settings,
        heartbeat_seconds=config.heartbeat,
    )
