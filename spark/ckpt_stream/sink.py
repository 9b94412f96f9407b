"""The sink on the driver: takes each micro-batch, sends its lanes to the executors, and collects what they did."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ckpt_stream import crash
from ckpt_stream.checkpoint_log import parse_initial_offsets, parse_offsets
from ckpt_stream.checksum import record_hash_column
from ckpt_stream.errors import ConfigError, StreamError
from ckpt_stream.files import CheckpointFiles
from ckpt_stream.lane import RESULT_SCHEMA, LaneSpec, LaneWriter
from ckpt_stream.ledger import FORMAT, Offsets, digest
from ckpt_stream.replays import note_replay
from ckpt_stream.run_record import now

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

#: The columns that a transform may return, and what the lanes take them as.
TYPES = {
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "dead_letter": "boolean",
}
#: From so many source records on it pays to read them with all cores before one lane writes them.
MANY = 10_000


@dataclass(frozen=True)
class BatchDone:
    """A batch whose every lane is in the sink."""

    batch: int
    started: str
    ended: str
    start: Offsets
    end: Offsets
    lanes: tuple[dict[str, Any], ...] = ()

    @property
    def differs(self) -> list[int]:
        """The lanes that were in the sink already, with other records than the replay gave."""
        return [lane["lane"] for lane in self.lanes if lane["differs"]]

    def as_record(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "started": self.started,
            "ended": self.ended,
            "start": self.start,
            "end": self.end,
            "records": sum(lane["records"] for lane in self.lanes),
            "dead_letters": sum(lane["dead_letters"] for lane in self.lanes),
            "skipped": sum(lane["skipped"] for lane in self.lanes),
            "differs": self.differs,
            "lanes": list(self.lanes),
        }


@dataclass(frozen=True)
class LeftBatch:
    """The batch that an earlier run has left in doubt, and how many of its lanes are in the sink."""

    batch: int
    lanes_there: int
    #: The format in which they are in the ledger.
    ledger_format: int = FORMAT
    #: The one run of whose rows they are; None if they are of several runs, or it is not known.
    attempt: str | None = None
    #: A user lets the stream go on although its replay differs from them.
    accepted: bool = False

    def is_part_of(self, lanes: int) -> bool:
        return 0 < self.lanes_there < lanes

    def is_whole(self, lanes: int) -> bool:
        """Whether the sink holds the batch as one run gave it. Format 1 was written without the proof of input."""
        return self.lanes_there == lanes and self.ledger_format > 1 and (lanes == 1 or self.attempt is not None)


class StopBeforeBatch(StreamError):
    """A stop was requested: the batch that Spark has planned is left to the next run."""


@dataclass
class Progress:
    """What the driver's watch sees of the sink; guarded by its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Event = field(default_factory=threading.Event)
    #: The batch being written and since when (monotonic), or None between batches.
    current: tuple[int, float] | None = None
    done: list[BatchDone] = field(default_factory=list)
    error: BaseException | None = None
    stopping: bool = False


class Sink:
    """The function given to ``foreachBatch``."""

    def __init__(
        self,
        files: CheckpointFiles,
        spec: LaneSpec,
        write: Callable[[DataFrame, LaneSpec], tuple[dict[str, Any], ...]],
        min_pause: float,
        look_at_sink: Callable[[], Offsets],
        left: LeftBatch | None = None,
    ) -> None:
        self.progress = Progress()
        self._files, self._spec, self._write = files, spec, write
        self._min_pause, self._look_at_sink = min_pause, look_at_sink
        self._left = left
        #: The transform keeps state, which a replay that differs would carry on with.
        self.keeps_state = False
        self._previous_end: tuple[int, Offsets] | None = None
        self._last_ended = float("-inf")

    def __call__(self, rows: DataFrame, batch: int, *, source_lost: bool = False) -> None:
        progress = self.progress
        try:
            self._pause(batch)
            with progress.lock:
                progress.current = (batch, time.monotonic())
            done = self._one_batch(rows, batch, source_lost=source_lost)
        except BaseException as e:
            with progress.lock:
                progress.error = e
            raise
        with progress.lock:
            progress.current = None
            progress.done.append(done)
        self._last_ended = time.monotonic()
        progress.changed.set()

    def _pause(self, batch: int) -> None:
        """Keep the minimum pause since the last batch, and the promise that no batch starts after a stop request."""
        while not self.progress.stopping and (left := self._last_ended + self._min_pause - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        if self.progress.stopping:
            raise StopBeforeBatch(f"batch {batch} is left to the next run")

    def _one_batch(self, rows: DataFrame, batch: int, *, source_lost: bool = False) -> BatchDone:
        started = now()
        text = self._files.read(f"offsets/{batch}")
        if text is None:
            raise StreamError(f"offsets/{batch} is not in the checkpoint although Spark runs the batch.")
        start, end = self._start_offsets(batch), parse_offsets(text, f"offsets/{batch}").kafka
        where = {"batch": batch, "driver_pids": self._spec.driver_pids}
        crash.reach(crash.OFFSETS_LOGGED, **where)
        sink_start = self._look_at_sink()
        query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        intent = replace(
            self._spec.intent, batch=batch, digest=digest(text), query_id=query_id or self._spec.intent.query_id
        )
        spec = replace(
            self._spec,
            intent=intent,
            start=start,
            end=end,
            offsets=text,
            sink_start=sink_start,
            source_lost=source_lost,
            # The one lane that there is holds the batch whole.
            may_differ=intent.lanes == 1 and not self.keeps_state,
        )
        lanes = self._write_lanes(rows, spec)
        crash.reach(crash.AFTER_LAST_LANE, **where)
        self._previous_end = (batch, end)
        done = BatchDone(batch, started, now(), start, end, lanes)
        if done.differs:
            self._note_replay(done, spec)
        return done

    def _left_of(self, spec: LaneSpec) -> LeftBatch | None:
        return self._left if self._left is not None and self._left.batch == spec.intent.batch else None

    def _write_lanes(self, rows: DataFrame, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        lanes, left = spec.intent.lanes, self._left_of(spec)
        if left is not None:
            whole = left.is_whole(lanes) and not self.keeps_state
            spec = replace(spec, ledger_format=left.ledger_format, may_differ=whole or left.accepted)
            if left.is_part_of(lanes):
                return self._finish(rows, spec, left)
        return self._write(rows, spec)

    def _finish(self, rows: DataFrame, spec: LaneSpec, left: LeftBatch) -> tuple[dict[str, Any], ...]:
        """A batch of which some lanes are missing: they may be written only from a replay that gives the others again."""
        fixed = rows.localCheckpoint()  # what was compared is what is written; rows that are lost meanwhile end the run
        self._write(fixed, replace(spec, only_compare=True))
        return self._write(fixed, replace(spec, attempt="" if left.accepted else left.attempt or ""))

    def _note_replay(self, done: BatchDone, spec: LaneSpec) -> None:
        """Keep for the verdict that the sink holds another attempt of a batch than the one that was replayed last."""
        left = self._left_of(spec)
        accepted = left is not None and left.accepted
        log.warning(
            "batch %s does not replay identically: lanes %s are in the sink as an earlier attempt wrote them. %s Make the "
            "transform a function of its input alone.",
            done.batch,
            done.differs,
            "A user has accepted that records of it may be lost or doubled."
            if accepted
            else "That attempt is complete, so nothing is lost or doubled.",
        )
        note_replay(self._files, spec.intent.query_id, done.batch, done.differs, run=spec.run_id, accepted=accepted)

    def _start_offsets(self, batch: int) -> Offsets:
        if self._previous_end is not None and self._previous_end[0] == batch - 1:
            return self._previous_end[1]
        return start_offsets(self._files, batch)


def start_offsets(files: CheckpointFiles, batch: int) -> Offsets:
    """Where a batch begins: the end of the one before it, or what the source pinned at its start."""
    if batch == 0:
        text = files.read("sources/0/0")
        return parse_initial_offsets(text) if text else {}
    text = files.read(f"offsets/{batch - 1}")
    return parse_offsets(text, f"offsets/{batch - 1}").kafka if text else {}


def output_columns(names: Sequence[str]) -> dict[str, Column]:
    """The transform's output as the lanes take it: key and value as binary, nothing unknown."""
    from pyspark.sql import functions as F

    if unknown := sorted(set(names) - set(TYPES)):
        raise ConfigError(
            f"The transform returns the columns {', '.join(unknown)}, which the sink does not know. Return key, value and, "
            "if wanted, headers and partition."
        )
    if "value" not in names:
        raise ConfigError("The transform returns no column 'value'.")
    columns = {name: F.col(name).cast(kind) for name, kind in TYPES.items() if name in names}
    if "dead_letter" in columns:
        columns["dead_letter"] = F.coalesce(columns["dead_letter"], F.lit(False))
    return {"key": F.lit(None).cast("binary")} | columns


def output(rows: DataFrame) -> DataFrame:
    return rows.select(*(column.alias(name) for name, column in output_columns(rows.columns).items()))


class LaneBatches:
    """Exactly once: one Kafka transaction per lane."""

    def __init__(self) -> None:
        self._columns: dict[int, list[Column]] = {}

    def __call__(self, rows: DataFrame, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        lanes, ledger_format = spec.intent.lanes, spec.ledger_format
        if ledger_format not in self._columns:  # every batch of a query has the same, and to build them takes 20 ms
            self._columns[ledger_format] = _lane_columns(rows.columns, ledger_format)
        divided = into_lanes(rows.select(*self._columns[ledger_format]), lanes, _offsets_between(spec.start, spec.end))
        done = divided.mapInArrow(LaneWriter(spec), RESULT_SCHEMA).collect()
        if sorted(row["lane"] for row in done) != list(range(lanes)):
            raise StreamError(f"Spark ran lanes {sorted(r['lane'] for r in done)} instead of 0 to {lanes - 1}.")
        return tuple(row.asDict() for row in sorted(done, key=lambda row: row["lane"]))


def _lane_columns(names: Sequence[str], ledger_format: int) -> list[Column]:
    columns = output_columns(names)
    columns["hash"] = record_hash_column(columns["key"], columns["value"], columns.get("headers"), ledger_format)
    return [column.alias(name) for name, column in columns.items()]


def into_lanes(rows: DataFrame, lanes: int, offsets: int) -> DataFrame:
    """The lane of a row is a function of its key (its value, where there is no key), so that a replay repeats it.

    One lane takes all rows. Where they are few, its task reads and transforms them itself; where they are many, all cores
    do that first.
    """
    from pyspark.sql import functions as F

    if lanes > 1:
        return rows.repartition(lanes, F.coalesce("key", "value"))
    return rows.repartition(1) if offsets >= MANY else rows.coalesce(1)


def _offsets_between(start: Offsets, end: Offsets) -> int:
    return sum(
        at - start.get(topic, {}).get(partition, 0) for topic, ends in end.items() for partition, at in ends.items()
    )


def write_at_least_once(kafka: Mapping[str, str]) -> Callable[[DataFrame, LaneSpec], tuple[dict[str, Any], ...]]:
    """Spark's own Kafka sink: a crash in a batch leaves what was written, and the replay writes it again."""
    from pyspark.sql import functions as F

    def write(rows: DataFrame, spec: LaneSpec) -> tuple[dict[str, Any], ...]:
        known = output(rows)
        if "dead_letter" in known.columns:
            topic = F.when(F.col("dead_letter"), F.lit(spec.dead_letter_topic)).otherwise(F.lit(spec.intent.topic))
            known = known.withColumn("topic", topic).drop("dead_letter")
        else:
            known = known.withColumn("topic", F.lit(spec.intent.topic))
        writer = known.write.format("kafka").options(**{f"kafka.{name}": value for name, value in kafka.items()})
        if "headers" in known.columns:
            writer = writer.option("includeHeaders", "true")
        writer.save()
        return ()

    return write
