"""Recomputes what the sink should hold from the source alone, and compares the two record by record.

This asks nothing of our own bookkeeping: the source range is the one that Spark's checkpoint claims, the transform is run
over it once more, and its output is compared with the sink as a multiset of keys and values.

A transform without state is run as one Spark batch. One with state (windows, running counts, duplicates dropped) depends
on where batches end and on the watermark each began with, so its batches are replayed one by one, in a scratch checkpoint,
from the entries of the offset log: late records are dropped, and windows closed, exactly as they were.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ckpt_stream.checkpoint_log import parse_initial_offsets, parse_offsets
from ckpt_stream.config import SECRETS_PROPERTY, StreamConfig, kafka_settings
from ckpt_stream.damaged import naming
from ckpt_stream.errors import ConfigError, StreamError
from ckpt_stream.files import CheckpointFiles, ReadableFiles
from ckpt_stream.recompute_range import Bounds, CannotTell, find_bounds, refuse_deleted
from ckpt_stream.records import Handling, handling
from ckpt_stream.run_record import FOLDER, POISON, entries, now
from ckpt_stream.security import client_settings
from ckpt_stream.sink import output
from ckpt_stream.sink_job import read_offsets, write_result
from ckpt_stream.source import keeps_state, read, reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ckpt_stream")

FORMAT = 1
BATCH, REPLAY = "batch", "replay"
#: Faults of one kind that are shown; the rest is only counted.
SHOWN = 10
#: As much of a key or value as is shown.
TEXT = 200
#: What `read_offsets` decides by itself.
OWN_OPTIONS = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger", "includeHeaders")

Transform = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class Order:
    """What is asked of a recomputation: ``"recompute": {...}`` in the stream's configuration."""

    #: The file that gets the result, as Spark names it.
    result: str
    #: The last batch to look at; None: the newest committed one.
    until: int | None = None
    #: A folder that all executors reach, for state and output of replayed batches; by default beside the run record.
    scratch: str | None = None


def take_order(text: str) -> tuple[Order | None, str]:
    """The order in a configuration, if there is one, and the configuration without it."""
    try:
        document = json.loads(text)
    except ValueError:
        return None, text
    if not isinstance(document, dict) or "recompute" not in document:
        return None, text
    order = document.pop("recompute")
    try:
        return Order(**order), json.dumps(document)
    except TypeError as e:
        raise ConfigError(f'"recompute" takes result, until and scratch: {e}') from e


def run(spark: SparkSession, config: StreamConfig, transform: Transform, order: Order) -> tuple[int, str]:
    """Recompute, and write the result: exit code and last line. The code says whether it was written, not what it is."""
    name = f"ckpt_stream: recompute of {config.name}"
    try:
        result = recompute(spark, config, transform, until=order.until, scratch=order.scratch)
        write_result(spark, order.result, json.dumps(result))
    except Exception as e:
        log.exception("the recomputation failed")
        return 1, f"{name} FAILED: {type(e).__name__}: {e}"
    numbers = ", ".join(f"{kind} {result[kind]}" for kind in ("expected", "found", "lost", "duplicated", "alien"))
    return 0, f"{name}: {numbers}; {len(result['unknown'])} thing(s) that could not be told"


def recompute(
    spark: SparkSession,
    config: StreamConfig,
    transform: Transform,
    *,
    until: int | None = None,
    scratch: str | None = None,
) -> dict[str, Any]:
    """What the sink lacks, and what it has too much, as a JSON document; numbers that could not be told are None."""
    begun = time.perf_counter()
    result = Result(config.name, config.sink)
    work = _Work(spark, config, transform)
    try:
        work.compare(result, until, scratch)
    except CannotTell as e:
        result.unknown.append({"kind": e.kind, "what": e.what, "helps": e.helps})
    result.seconds = round(time.perf_counter() - begun, 3)
    return result.as_dict()


@dataclass
class Result:
    """The document that a recomputation writes."""

    stream: str
    sink: str
    mode: str | None = None
    last_batch: int | None = None
    source_records: int | None = None
    expected: int | None = None
    found: int | None = None
    lost: int | None = None
    duplicated: int | None = None
    alien: int | None = None
    #: kind, records, key, value and, for what is in the sink, partition and offset.
    examples: list[dict[str, Any]] = field(default_factory=list)
    #: kind, what, helps: why it could not be told.
    unknown: list[dict[str, str]] = field(default_factory=list)
    time: str = field(default_factory=now)
    seconds: float = 0.0
    format: int = FORMAT

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class _Work:
    """One recomputation."""

    def __init__(self, spark: SparkSession, config: StreamConfig, transform: Transform) -> None:
        self.spark, self.config = spark, config
        self.transform = transform
        self.kafka = kafka_settings(config, spark.conf.get(SECRETS_PROPERTY, None))
        self.files = CheckpointFiles(spark, config.checkpoint)

    def compare(self, result: Result, until: int | None, scratch: str | None) -> None:
        bounds = find_bounds(self.files, self.config, client_settings(self.kafka), until)
        ranges = source_ranges(self.files, bounds.last)
        refuse_deleted(client_settings(self.kafka), ranges)
        result.last_batch = bounds.last
        result.source_records = sum(end - start for ps in ranges.values() for start, end in ps.values())
        stream = self._output(read(self.spark, self.config, self.kafka, {}))
        if not keeps_state(stream):
            result.mode = BATCH
            self._against_sink(result, self._output(self._source(ranges)), bounds)
            return
        result.mode = REPLAY
        name = f"recompute-{secrets.token_hex(4)}"
        place = CheckpointFiles(self.spark, scratch or f"{self.files.root.toString()}/{FOLDER}")
        try:
            expected = self._replayed(stream, bounds.last, f"{place.root.toString()}/{name}")
            self._against_sink(result, expected, bounds)
        finally:
            place.delete_folder(name)

    def _output(self, events: DataFrame) -> DataFrame:
        """The transform's records as the sink gets them. Malformed ones are set aside as in the stream, and not compared."""
        with naming(POISON):
            poison = [p for p in entries(self.files.read(POISON), "list of poison records") if p.get("once")]
        with handling(Handling(self.config.malformed, poison, dict(self.config.options))):
            rows = self.transform(events)
        return output(rows).select("key", "value")

    def _source(self, ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> DataFrame:
        options = {k: v for k, v in reader_options(self.config, self.kafka).items() if k not in OWN_OPTIONS}
        wanted = {t: {p: b for p, b in ps.items() if b[0] < b[1]} for t, ps in ranges.items()}
        return read_offsets(self.spark, self.kafka, wanted, headers=self.config.include_headers, options=options)

    def _replayed(self, stream: DataFrame, last: int, scratch: str) -> DataFrame:
        """Run every batch of the log once more: Spark takes an entry without a commit for one that a crash has left."""
        logged = {batch: self.files.read(f"offsets/{batch}") for batch in range(last + 1)}
        if missing := [batch for batch, text in logged.items() if text is None]:
            raise CannotTell(
                "checkpoint_history",
                f"The transform keeps state, and the checkpoint's log no longer has batch {missing[0]}: Spark keeps the last "
                "100 (spark.sql.streaming.minBatchesToRetain).",
                "recompute earlier in the stream's life, set minBatchesToRetain higher, or verify at depth `sink`",
            )
        files = CheckpointFiles(self.spark, f"{scratch}/checkpoint")
        files.write("sources/0/0", self.files.read("sources/0/0") or "")
        for batch, text in logged.items():
            files.write(f"offsets/{batch}", text or "")
            query = (
                stream.writeStream.outputMode(self.config.output_mode or "append")
                .option("checkpointLocation", f"{scratch}/checkpoint")
                .foreachBatch(_keep(f"{scratch}/output"))
                .trigger(once=True)  # the entry of the log, and nothing newer
                .start()
            )
            query.awaitTermination()
            if not files.exists(f"commits/{batch}"):
                raise StreamError(f"Batch {batch} was not replayed: Spark ended without committing it.")
            log.info("batch %s of %s replayed", batch, last)
        return self.spark.read.schema("key binary, value binary").parquet(f"{scratch}/output/*")

    def _against_sink(self, result: Result, expected: DataFrame, bounds: Bounds) -> None:
        wanted = {p: (bounds.start.get(p, 0), end) for p, end in bounds.end.items() if bounds.start.get(p, 0) < end}
        found = read_offsets(self.spark, self.kafka, {self.config.sink: wanted})
        compare_records(result, expected, found)


def _keep(folder: str) -> Callable[[DataFrame, int], None]:
    def keep(rows: DataFrame, batch: int) -> None:
        rows.select("key", "value").write.mode("overwrite").parquet(f"{folder}/{batch}")

    return keep


def source_ranges(files: ReadableFiles, last: int) -> dict[str, dict[int, tuple[int, int]]]:
    """``{topic: {partition: (start, end)}}`` from the first batch to this one; a partition added later begins at 0."""
    initial, final = files.read("sources/0/0"), files.read(f"offsets/{last}")
    for text, name in ((initial, "sources/0/0"), (final, f"offsets/{last}")):
        if text is None:
            raise CannotTell(
                "checkpoint_history",
                f"The checkpoint no longer has {name}: the source range is not known.",
                "recompute up to a batch that is still in the checkpoint's log",
            )
    starts, ends = parse_initial_offsets(initial or ""), parse_offsets(final or "").kafka
    return {
        topic: {int(p): (int(starts.get(topic, {}).get(p, 0)), int(end)) for p, end in partitions.items()}
        for topic, partitions in ends.items()
    }


def compare_records(result: Result, expected: DataFrame, found: DataFrame) -> None:
    """Count both sides by two 64-bit hashes of key and value: memory follows neither side, and chance has 2**-128."""
    from pyspark.sql import functions as F

    none = F.lit(None).cast("struct<partition:int,offset:long>")
    claimed = _hashed(expected).withColumns({"e": F.lit(1), "f": F.lit(0), "place": none})
    there = _hashed(found).withColumns({"e": F.lit(0), "f": F.lit(1), "place": F.struct("partition", "offset")})
    names = ["h1", "h2", "e", "f", "place"]
    counted = (
        claimed.select(*names)
        .union(there.select(*names))
        .groupBy("h1", "h2")
        .agg(F.sum("e").alias("e"), F.sum("f").alias("f"), F.max("place").alias("place"))
    )
    kinds = {
        "lost": (F.greatest(F.col("e") - F.col("f"), F.lit(0)), claimed),
        "duplicated": (F.when(F.col("e") > 0, F.greatest(F.col("f") - F.col("e"), F.lit(0))).otherwise(0), there),
        "alien": (F.when(F.col("e") == 0, F.col("f")).otherwise(0), there),
    }
    sums = [F.coalesce(F.sum(count), F.lit(0)).alias(kind) for kind, (count, _) in kinds.items()]
    sums += [F.coalesce(F.sum(c), F.lit(0)).alias(n) for c, n in (("e", "expected"), ("f", "found"))]
    totals = counted.agg(*sums).first()
    for name, value in (totals.asDict() if totals else {}).items():
        setattr(result, name, int(value))
    for kind, (count, side) in kinds.items():
        if getattr(result, kind):
            result.examples += _examples(kind, counted.withColumn("records", count), side)


def _hashed(rows: DataFrame) -> DataFrame:
    """Spark's hash passes over a null: the second one says where it stood."""
    from pyspark.sql import functions as F

    key, value = F.col("key"), F.col("value")
    return rows.withColumns(
        {"h1": F.xxhash64(key, value), "h2": F.xxhash64(value, key.isNull(), value.isNull(), F.length(key), key)}
    )


def _examples(kind: str, counted: DataFrame, side: DataFrame) -> list[dict[str, Any]]:
    """A few faults of a kind with key and value, which are looked up once more where they come from."""
    from pyspark.sql import functions as F

    worst = counted.filter("records > 0").select("h1", "h2", "records", "place").limit(SHOWN).collect()
    wanted = {(row["h1"], row["h2"]): row for row in worst}
    texts = (
        side.filter(F.col("h1").isin([h1 for h1, _ in wanted]))
        .groupBy("h1", "h2")
        .agg(F.first("key").alias("key"), F.first("value").alias("value"))
        .collect()
    )
    shown = []
    for text in texts:
        row = wanted.get((text["h1"], text["h2"]))
        if row is not None:
            place = row["place"]
            where = {name: place[name] if place is not None else None for name in ("partition", "offset")}
            shown.append(
                {
                    "kind": kind,
                    "records": row["records"],
                    "key": _text(text["key"]),
                    "value": _text(text["value"]),
                    **where,
                }
            )
    return sorted(shown, key=lambda e: (e["partition"] or 0, e["offset"] or 0, e["key"] or ""))


def _text(data: Any) -> str | None:
    return None if data is None else bytes(data)[:TEXT].decode(errors="replace")
