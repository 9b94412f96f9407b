"""`run(transform)`: one life of a stream's driver, from its configuration to its end."""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt_stream import crash, redaction, restart_history, stop_request
from ckpt_stream import run_record as records
from ckpt_stream.config import (
    AT_LEAST_ONCE,
    SECRETS_PROPERTY,
    StreamConfig,
    delete_secrets_file,
    find_document,
    from_json,
    kafka_settings,
)
from ckpt_stream.damaged import naming
from ckpt_stream.decision import CheckpointEnd, Intent, Reconciliation
from ckpt_stream.errors import ConfigError, SinkRecreated, StreamError
from ckpt_stream.failure import describe, is_data_loss
from ckpt_stream.files import CheckpointFiles, tidy
from ckpt_stream.heart import Heart
from ckpt_stream.lane import LaneSpec
from ckpt_stream.lease import read_other, refuse_if_alive, this_driver
from ckpt_stream.ledger import Offsets
from ckpt_stream.offset_mirror import OffsetMirror
from ckpt_stream.recompute import run as run_recompute
from ckpt_stream.recompute import take_order
from ckpt_stream.records import Handling, handling, may_be_met
from ckpt_stream.run_record import RunRecord
from ckpt_stream.security import client_settings, java_settings
from ckpt_stream.sink import LaneBatches, Sink, write_at_least_once
from ckpt_stream.source import keeps_state, read, refuse_unsafe, start_options
from ckpt_stream.source_gap import GapBatch, SourceGap
from ckpt_stream.start_of_run import Start, begin, checkpoint_end
from ckpt_stream.topics import Topics
from ckpt_stream.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ckpt_stream")

Transform = Callable[["DataFrame"], "DataFrame"]

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
#: A batch is in memory several times: in the JVM, in the worker, and as Python objects on the way to Kafka's client.
ARROW_BATCH_BYTES = 32 << 20


def run(transform: Transform, *, output_mode: str = "append", argv: Sequence[str] | None = None) -> NoReturn:
    """Run the stream described by the configuration that was passed to the application; never returns.

    ``output_mode`` is what the transform is made for; the stream's configuration may choose another. With
    ``"recompute": {"result": <file>}`` in it, the transform is run over the stream's source range once more and compared
    with the sink instead.
    Ends with exit code 0 when the stream was stopped or has finished, otherwise with another one and the reason as the
    last line of the log and in the run record.
    """
    delete_secrets_file()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        order, document = take_order(find_document(sys.argv if argv is None else argv))
        config = from_json(document)
    except ConfigError as e:
        print(f"ckpt_stream: {e}", file=sys.stderr, flush=True)
        sys.exit(2)
    spark = session(config)
    config = replace(config, output_mode=config.output_mode or output_mode)
    if order is None:
        code, last_line = Driver(spark, config, transform).run()
    else:
        code, last_line = run_recompute(spark, config, transform, order)
    spark.stop()
    print(last_line, file=sys.stderr, flush=True)
    sys.exit(code)


def session(config: StreamConfig) -> SparkSession:
    spark = redaction.session(config.name)
    bound_arrow_batches(spark)
    spark.sparkContext.setLogLevel(os.environ.get("CKPT_SPARK_LOG_LEVEL", "WARN"))
    return spark


def bound_arrow_batches(spark: SparkSession) -> None:
    """Let no Arrow batch of large records fill an executor's memory, unless the user has set the limit."""
    if not spark.sparkContext.getConf().contains(ARROW_BYTES):
        spark.conf.set(ARROW_BYTES, str(ARROW_BATCH_BYTES))


class Driver:
    """Puts source, transform, sink, mirror and run record together.

    ``ignore_ledger`` is the negative control of the project's own tests: a replayed batch is written again. `run` never
    sets it, and no environment or configuration reaches it.
    """

    def __init__(
        self, spark: SparkSession, config: StreamConfig, transform: Transform, *, ignore_ledger: bool = False
    ) -> None:
        self.spark, self.config, self.transform = spark, config, transform
        self.ignore_ledger = ignore_ledger
        self.kafka: Mapping[str, Any] = config.kafka
        self.files = CheckpointFiles(spark, config.checkpoint)
        self.record = self._new_record()
        self.heart = Heart(self.files, self.record)
        self.sink: Sink | None = None
        self._gap: SourceGap | None = None
        self._known_runs: dict[str, RunRecord] = {}
        #: The runs that had a record before this one had.
        self._came_first: list[str] = []
        #: The last heartbeats of dead runs.
        self._silent: dict[str, str] = {}
        #: What this run goes on from.
        self._committed: Offsets = {}

    def run(self) -> tuple[int, str]:
        """The exit code, and the line that ends the log."""
        self._came_first = records.run_names(self.files.names(records.RUNS))
        self._enter(records.STARTING)
        self.heart.start()
        try:
            return self._one_life()
        finally:
            self.heart.stop()

    def _one_life(self) -> tuple[int, str]:
        name = f"ckpt_stream: run {self.record.run} of {self.config.name}"
        try:
            state = self._live()
        except BaseException as e:
            failure = describe(e, self.sink.progress if self.sink else None)
            self.record.failure = failure
            # The list of poison records first: a supervisor that sees FAILED may start the next run at once.
            self._remember_poison(failure)
            self._enter(records.FAILED)
            return 1, f"{name} FAILED: {failure.error}: {failure.message}"
        self._enter(state)
        return 0, f"{name} {state}"

    def _cause(self, error: BaseException) -> BaseException:
        """The error, or the refusal that names what was lost when that is why Spark gave up."""
        if self._gap is None or not is_data_loss(error, self.sink.progress if self.sink else None):
            return error
        try:
            lost = self._gap.find()
        except Exception as e:
            log.warning("it could not be found out what the source has lost: %s", e)
            return error
        return self._gap.refusal(lost) if lost else error

    def _live(self) -> str:
        refuse_unsafe(self.config, dict(self.spark.sparkContext.getConf().getAll()), os.environ)
        if crash.armed_points:
            log.warning(
                "%s is set: this driver kills itself at %s", crash.ENVIRONMENT, ", ".join(sorted(crash.armed_points))
            )
        self.kafka = kafka_settings(self.config, self.spark.conf.get(SECRETS_PROPERTY, None))
        self._refuse_if_alive()
        self._note_restart()
        if (stop := self._pending_stop()) is not None:
            log.info("not begun: stop requested by %s at %s", stop.get("by"), stop.get("time"))
            return records.STOPPED
        topics = Topics(client_settings(self.kafka))
        start = self._begin(topics)
        self._committed = start.end
        self.record.reconciliation = start.reconciliation.line
        self.record.query_id = start.checkpoint.query_id
        log.info("reconciliation: %s", start.reconciliation.line)
        mirror = OffsetMirror(
            self.kafka, self.config.group, self.config.offset_mirror, self.config.offset_mirror_period
        )
        try:
            if start.checkpoint.committed is not None and start.end:
                mirror.restored(start.checkpoint.committed, start.end)
            sink = self.sink = self._build_sink(topics, start)
            gap = self._gap = SourceGap(self.files, topics, self.config)
            # Another one may have written its record after the first look, and taken itself for the older one.
            self._refuse_if_alive()
            in_sink = len(start.reconciliation.to_finish) < self.config.lanes
            for step in gap.batches(in_sink=in_sink):
                state = self._watch_over(self._start_over_gap(sink, gap, step), sink, mirror)
                if sink.progress.stopping:
                    return state
            return self._watch_over(self._start_query(topics, start, sink), sink, mirror)
        except Exception as e:
            if (cause := self._cause(e)) is not e:
                raise cause from e
            raise
        finally:
            mirror.close()
            topics.close()

    def _refuse_if_alive(self) -> None:
        self._silent = refuse_if_alive(
            self.record,
            self._other_runs,
            came_first=self._came_first,
            silent=self._silent,
            say=lambda text: log.info("%s", text),
        )

    def _begin(self, topics: Topics) -> Start:
        config = self.config
        sink = topics.get(config.sink, "sink")
        if config.dead_letter_topic:
            topics.get(config.dead_letter_topic, "dead-letter")
        self._topic_id, self._max_message_bytes = sink.id, topics.max_message_bytes(config.sink)
        if config.guarantee == AT_LEAST_ONCE:
            end: CheckpointEnd = checkpoint_end(self.files)
            return Start(Reconciliation("at-least-once: nothing to reconcile"), end, {})
        return begin(
            self.files,
            topics,
            client_settings(self.kafka),
            self._intent(""),
            run_id=self.record.run,
            application=config.application_version,
            timeout_ms=int(config.transaction_timeout * 1000),
            adopt_ledger=config.start == "ledger",
        )

    def _intent(self, query_id: str) -> Intent:
        c = self.config
        return Intent(c.sink_id, query_id, c.lanes, 0, "", c.sink, self._topic_id)

    def _watch_over(self, query: Any, sink: Sink, mirror: OffsetMirror) -> str:
        self.record.query_id = str(query.id)
        if self.record.state != records.RUNNING:
            self._enter(records.RUNNING)
        return Watch(
            query, sink.progress, self.files, self.heart, mirror, self.config, self._driver_pids()
        ).until_the_end()

    def _start_over_gap(self, sink: Sink, gap: SourceGap, step: GapBatch) -> Any:
        """A query of one batch that does not fail on lost records: they are known and accepted."""

        def one_batch(rows: DataFrame, batch: int) -> None:
            if batch != step.batch:
                raise StreamError(
                    f"Spark ran batch {batch} in place of {step.batch}, which passes over an accepted loss."
                )
            sink(rows, batch, source_lost=step.as_planned)
            if step.as_planned:
                # More may have been lost while it was read; without its commit-log entry a later start finds it.
                gap.refuse_unless_accepted(batch)

        rows = self._transformed(read(self.spark, self.config, self.kafka, {}, over_a_gap=True))
        return self._writer(rows, one_batch).trigger(once=True).start()

    def _start_query(self, topics: Topics, start: Start, sink: Sink) -> Any:
        config = self.config
        where: Mapping[str, str] = {}
        if start.checkpoint.newest is None:
            partitions = topics.partitions(config.source, config.source_pattern)
            where = start_options(config, self.kafka, partitions, start.end)
        events = read(self.spark, config, self.kafka, where)
        rows = self._transformed(events)
        if start.reconciliation.adopt is not None and keeps_state(rows):
            raise ConfigError(
                'start="ledger" is for stateless streams: this transform keeps state, which was lost with the checkpoint, '
                "and its results would begin at zero. Put the checkpoint back, or start over with a new sink and sink_id."
            )
        writer = self._writer(rows, sink)
        if config.drain:
            writer = writer.trigger(availableNow=True)
        elif config.trigger_interval > 0:
            writer = writer.trigger(processingTime=f"{int(config.trigger_interval * 1000)} milliseconds")
        return writer.start()

    def _writer(self, rows: DataFrame, write: Callable[[DataFrame, int], None]) -> Any:
        assert self.sink is not None  # noqa: S101 - set by _live
        self.sink.keeps_state = keeps_state(rows)
        return (
            rows.writeStream.queryName(self.config.name)
            .outputMode(self.config.output_mode or "append")
            .option("checkpointLocation", self.config.checkpoint)
            .foreachBatch(write)
        )

    def _transformed(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        config = self.config
        with naming(records.POISON):
            known = records.entries(self.files.read(records.POISON), "list of poison records")
        consumed = [p for p in known if p.get("once") and may_be_met(p, self._committed)]
        settings = Handling(config.malformed, consumed, dict(config.options))
        with handling(settings):
            rows = self.transform(events)
        for dead in settings.dead_letters:
            flagged = rows if "dead_letter" in rows.columns else rows.withColumn("dead_letter", F.lit(False))
            rows = flagged.unionByName(dead.withColumn("dead_letter", F.lit(True)), allowMissingColumns=True)
        return rows

    def _driver_pids(self) -> tuple[int, ...]:
        return int(self.record.driver["jvm_pid"]), int(self.record.driver["pid"])

    def _build_sink(self, topics: Topics, start: Start) -> Sink:
        config = self.config
        kafka = client_settings(self.kafka)
        if self._max_message_bytes:
            kafka.setdefault("message.max.bytes", self._max_message_bytes)
        intent = replace(self._intent(start.checkpoint.query_id or ""), adopted=start.adopted)
        spec = LaneSpec(
            intent=intent,
            kafka=kafka,
            run_id=self.record.run,
            start={},
            end={},
            application=config.application_version,
            transaction_timeout_ms=int(config.transaction_timeout * 1000),
            history=config.ledger_history,
            dead_letter_topic=config.dead_letter_topic,
            audit=config.audit == "record",
            driver_pids=self._driver_pids(),
            ignore_ledger=self.ignore_ledger,
        )
        exactly_once = config.guarantee != AT_LEAST_ONCE
        write = LaneBatches() if exactly_once else write_at_least_once(java_settings(self.kafka))

        others = (config.dead_letter_topic,) if config.dead_letter_topic else ()

        def look_at_sink() -> Offsets:
            found, ends = topics.look(config.sink, *others)
            if found is None or found.id != self._topic_id:
                now = (
                    "is gone"
                    if found is None
                    else f"was deleted and made again (id {found.id} instead of {self._topic_id})"
                )
                raise SinkRecreated(
                    f"The sink topic {config.sink!r} {now} while the stream ran.",
                    "What earlier batches wrote is gone.",
                    f"find out who did it; accept the loss with `airflow-ckpt ledger rebuild {config.sink_id}`.",
                )
            return ends

        return Sink(self.files, spec, write, config.min_pause, look_at_sink, start.left)

    def _new_record(self) -> RunRecord:
        config, context = self.config, self.spark.sparkContext
        token = config.token or secrets.token_hex(4)
        jvm: Any = self.spark._jvm
        settings = asdict(config)
        settings["kafka"] = {"bootstrap.servers": config.kafka["bootstrap.servers"]}
        del settings["accepted_loss"]  # it belongs to this run alone
        return RunRecord(
            run=records.run_name(datetime.now(UTC), token),
            stream=config.name,
            token=token,
            driver=this_driver(int(jvm.java.lang.ProcessHandle.current().pid())),
            spark={"application_id": context.applicationId, "ui": context.uiWebUrl, "version": context.version},
            settings=settings,
            heartbeat_seconds=config.heartbeat,
        )

    def _enter(self, state: str) -> None:
        self.record.enter(state)
        log.info("run %s is %s", self.record.run, state)
        self.heart.save()

    def _other_runs(self) -> list[RunRecord]:
        """The other runs of this checkpoint. One that has ended is read once."""
        for name in records.run_names(self.files.names(records.RUNS)):
            known = self._known_runs.get(name)
            if name == self.record.run or (known is not None and known.state not in records.LIVE):
                continue
            self._known_runs[name] = read_other(self.files, name, self.config.heartbeat)
        return list(self._known_runs.values())

    def _pending_stop(self) -> dict[str, Any] | None:
        """A stop request for this run; one that a run before it did not live to obey is.

        A driver without a token was started by hand, by a user who wants the stream to run again.
        """
        while (text := self.files.read(records.STOP)) is not None:
            request = records.read_stop(text)
            if request is not None and not records.is_meant_for(request, self.record):
                obeyed = records.is_obeyed(request, self._other_runs())
                request = None if obeyed or not self.config.token else request
            if request is None:
                if stop_request.remove(self.files, text):
                    return None
            elif stop_request.take_up(self.files, self.heart, text):
                if not records.is_meant_for(request, self.record):
                    self.files.write(records.STOP, json.dumps({**request, "run": self.record.run}))
                return request
        return None

    def _note_restart(self) -> None:
        """Add to the restart history if the run before this one did not end on its own accord."""
        others = sorted(self._other_runs(), key=lambda r: r.run)
        tidy(self.files, [old.path for old in others[: -records.KEEP_RUNS]])
        if not others or others[-1].state in (records.STOPPED, records.FINISHED):
            return
        last = others[-1]
        entry = {
            "kind": records.RESTART,
            "time": records.now(),
            "token": self.record.token,
            "run": self.record.run,
            "after_run": last.run,
            "after_state": last.state if last.state == records.FAILED else "LOST",
            "reason": f"{last.failure.error}: {last.failure.message}" if last.failure else "the driver vanished",
        }
        # Who started this run may have noted it.
        restart_history.add(
            self.files, entry, unless=lambda known: any(e.get("token") == entry["token"] for e in known)
        )

    def _remember_poison(self, failure: records.Failure) -> None:
        if not failure.poison or not failure.poison.get("once"):
            return
        with naming(records.POISON):
            known = records.entries(self.files.read(records.POISON), "list of poison records")
        known.append({**failure.poison, "run": self.record.run, "batch": failure.batch, "time": records.now()})
        newest = len(known) - records.KEEP_POISON
        kept = [p for number, p in enumerate(known) if number >= newest or may_be_met(p, self._committed)]
        self.files.write(records.POISON, records.listing(kept))
