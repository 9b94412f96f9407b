"""One run of a stream's driver, from its start to its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.driver import stopping
from ckpt_stream.driver.failure import describe, is_data_loss
from ckpt_stream.driver.heartbeat import Heartbeat
from ckpt_stream.driver.new_record import new_record
from ckpt_stream.driver.offset_mirror import OffsetMirror
from ckpt_stream.driver.other_runs import OtherRuns
from ckpt_stream.driver.poison_list import remember_poison
from ckpt_stream.driver.queries import Queries
from ckpt_stream.driver.sink import Sink, driver_pids, new_sink
from ckpt_stream.driver.sink_topic import SinkTopic, find_sink_topic
from ckpt_stream.driver.source_loss import SourceLoss
from ckpt_stream.driver.start_of_run import Start, reconcile_at_start
from ckpt_stream.driver.watch import Watch
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.machine import crashes
from ckpt_stream.machine.application_input import with_secrets
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.checkpoint.intact_checkpoint import read_intact_checkpoint
from ckpt_stream.protocol.ledger.batch_to_write import SinkIdentity
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files import run_record
from ckpt_stream.protocol.run_files.restart_history import note_own_start
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.protocol.settings.stream_settings import AT_LEAST_ONCE
from ckpt_stream.spark.hadoop_files import CheckpointFiles
from ckpt_stream.spark.source import start_options
from ckpt_stream.spark.transform import Transform
from ckpt_stream.spark.unsafe_settings import refuse_unsafe_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ckpt_stream")


class Driver:
    """Runs a stream: puts source, transform, sink, offset mirror and run record together.

    ``ignore_ledger`` is the negative control of the project's own tests: a replayed batch is written again. The `run` of an
    application never sets it, and no environment or configuration does.
    """

    def __init__(
        self, spark: SparkSession, config: StreamConfig, transform: Transform, *, ignore_ledger: bool = False
    ) -> None:
        self.spark, self.config, self.transform = spark, config, transform
        self.ignore_ledger = ignore_ledger
        self.kafka: Mapping[str, Any] = config.kafka
        self.files = CheckpointFiles(spark, config.checkpoint)
        self.record = new_record(spark, config)
        self.heartbeat = Heartbeat(self.files, self.record)
        self.sink: Sink | None = None
        self.loss: SourceLoss | None = None
        #: The offsets from which this run continues.
        self.committed: Offsets = {}

    def run(self) -> tuple[int, str]:
        """Run the stream to its end; returns the exit code and the last line of the log."""
        others = OtherRuns(self.files, self.record)
        self._enter(run_record.STARTING)
        self.heartbeat.start()
        try:
            return self._run_to_end(others)
        finally:
            self.heartbeat.stop()

    def _run_to_end(self, others: OtherRuns) -> tuple[int, str]:
        name = f"ckpt_stream: run {self.record.run} of {self.config.name}"
        try:
            state = self._run_stream(others)
        except BaseException as e:
            failure = describe(e, self.sink.progress if self.sink else None)
            self.record.failure = failure
            # The list of poison records comes first: a supervisor that sees FAILED may start the next run at once.
            remember_poison(self.files, failure, self.record.run, self.committed)
            self._enter(run_record.FAILED)
            return 1, f"{name} FAILED: {failure.error}: {failure.message}"
        self._enter(state)
        return 0, f"{name} {state}"

    def _run_stream(self, others: OtherRuns) -> str:
        """Run the stream; returns the state in which it ended well."""
        # Before all else: so every run that fails later has found all older runs dead, and readers of run records can stop at it.
        others.refuse_if_alive()
        refuse_unsafe_settings(self.config, dict(self.spark.sparkContext.getConf().getAll()), os.environ)
        crashes.refuse_unusable()
        if crashes.armed_points:
            log.warning(
                "%s is set: this driver kills itself at %s",
                crash_points.ENVIRONMENT,
                ", ".join(sorted(crashes.armed_points)),
            )
        self.kafka = with_secrets(self.config.kafka, self.spark.conf.get(SECRETS_PROPERTY, None))
        others.delete_old()
        note_own_start(self.files, self.record, others.read())
        request = stopping.take_up_pending(self.files, self.heartbeat, others.read, submitted=bool(self.config.token))
        if request is not None:
            log.info("no batch was begun: stop requested by %s at %s", request.get("by"), request.get("time"))
            return run_record.STOPPED
        topics = Topics(client_settings(self.kafka))
        topic = find_sink_topic(topics, self.config)
        start = self._begin(topics, topic)
        self.committed = start.end
        self.record.reconciliation = start.reconciliation.line
        self.record.query_id = start.checkpoint.query_id
        log.info("reconciliation: %s", start.reconciliation.line)
        mirror = OffsetMirror(
            self.kafka, self.config.group, self.config.offset_mirror, self.config.offset_mirror_period
        )
        try:
            if start.checkpoint.committed is not None and start.end:
                mirror.begin_at(start.checkpoint.committed, start.end)
            self.sink = self._new_sink(topic, start)
            self.loss = SourceLoss(self.files, topics, self.config)
            # A second check: another run that started at the same time may have written its record after the first check.
            others.refuse_if_alive()
            return self._run_queries(topics, start, self.sink, self.loss, mirror)
        except Exception as e:
            if (cause := self._cause(e)) is not e:
                raise cause from e
            raise
        finally:
            mirror.close()
            topics.close()

    def _begin(self, topics: Topics, topic: SinkTopic) -> Start:
        config = self.config
        if config.guarantee == AT_LEAST_ONCE:
            return Start(Reconciliation(Resume.UNCHECKED), read_intact_checkpoint(self.files), {})
        return reconcile_at_start(
            self.files,
            topics,
            client_settings(self.kafka),
            self._identity(topic),
            run_id=self.record.run,
            application=config.application_version,
            timeout_ms=int(config.transaction_timeout * 1000),
            adopt_ledger=config.start == "ledger",
        )

    def _identity(self, topic: SinkTopic) -> SinkIdentity:
        return SinkIdentity(self.config.sink_id, self.config.lanes, self.config.sink, topic.id)

    def _new_sink(self, topic: SinkTopic, start: Start) -> Sink:
        return new_sink(
            self.files,
            self.kafka,
            self.config,
            self.record,
            self._identity(topic),
            topic,
            start,
            ignore_ledger=self.ignore_ledger,
        )

    def _run_queries(self, topics: Topics, start: Start, sink: Sink, loss: SourceLoss, mirror: OffsetMirror) -> str:
        config = self.config
        queries = Queries(self.spark, config, self.kafka, self.transform, self.files, sink, self.committed)
        partly_in_sink = len(start.reconciliation.to_finish) < config.lanes
        for step in loss.batches(partly_in_sink=partly_in_sink):
            state = self._watch_over(queries.start_over_loss(loss, step), sink, mirror)
            if sink.progress.stopping:
                return state
        where: Mapping[str, str] = {}
        if start.checkpoint.newest is None:
            partitions = topics.source_partitions(config.source, config.source_pattern)
            where = start_options(config, self.kafka, partitions, start.end)
        adopts_ledger = start.reconciliation.adopt is not None
        return self._watch_over(queries.start_stream(where, adopts_ledger=adopts_ledger), sink, mirror)

    def _watch_over(self, query: Any, sink: Sink, mirror: OffsetMirror) -> str:
        self.record.query_id = str(query.id)
        if self.record.state != run_record.RUNNING:
            self._enter(run_record.RUNNING)
        return Watch(
            query, sink.progress, self.files, self.heartbeat, mirror, self.config, driver_pids(self.record)
        ).until_the_end()

    def _cause(self, error: BaseException) -> BaseException:
        """The error; or, if Spark failed because of lost records, the refusal that names them."""
        if self.loss is None or not is_data_loss(error, self.sink.progress if self.sink else None):
            return error
        try:
            lost = self.loss.find()
        except Exception as e:
            log.warning("the lost records of the source could not be determined: %s", e)
            return error
        return self.loss.refusal(lost) if lost else error

    def _enter(self, state: str) -> None:
        self.record.enter(state)
        log.info("run %s is %s", self.record.run, state)
        self.heartbeat.save()
