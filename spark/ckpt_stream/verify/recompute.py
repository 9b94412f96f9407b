"""Recomputes the records that the sink should hold from the source, and compares them with the sink record by record.

It uses no counts of the ledger. The source range comes from Spark's checkpoint; the transform runs over it once more, and its
output is compared with the sink as a multiset of keys and values.

A transform without state runs as one Spark batch. A transform with state (windows, running counts, dropped duplicates) depends
on where each batch ends and on its watermark, so its batches are replayed one by one, in a scratch checkpoint, from the entries
of the offset log: then late records are dropped and windows are closed exactly as in the stream.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ckpt_stream.errors import CannotTell
from ckpt_stream.kafka.settings import client_settings
from ckpt_stream.machine.application_input import with_secrets
from ckpt_stream.protocol.run_files.record_files import FOLDER
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.spark.hadoop_files import CheckpointFiles
from ckpt_stream.spark.kafka_ranges import read_offsets
from ckpt_stream.spark.output import select_output
from ckpt_stream.spark.poison_records import consumed_records
from ckpt_stream.spark.source import read, reader_options
from ckpt_stream.spark.transform import Transform, apply_transform, keeps_state
from ckpt_stream.verify.batch_replay import replay
from ckpt_stream.verify.recompute_documents import RecomputeRequest, RecomputeResult
from ckpt_stream.verify.recompute_range import Bounds, find_bounds, refuse_deleted, source_ranges
from ckpt_stream.verify.record_comparison import compare_records
from ckpt_stream.verify.sink_job import write_result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ckpt_stream")

BATCH, REPLAY = "batch", "replay"
#: Options that `read_offsets` sets itself.
OWN_OPTIONS = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger", "includeHeaders")


def run(spark: SparkSession, config: StreamConfig, transform: Transform, request: RecomputeRequest) -> tuple[int, str]:
    """Recompute and write the result; returns exit code and last line. Exit code 0 means that the result was written."""
    name = f"ckpt_stream: recompute of {config.name}"
    try:
        result = recompute(spark, config, transform, until=request.until, scratch=request.scratch)
        write_result(spark, request.result, json.dumps(result))
    except Exception as e:
        log.exception("the recomputation failed")
        return 1, f"{name} FAILED: {type(e).__name__}: {e}"
    numbers = ", ".join(f"{kind} {result[kind]}" for kind in ("expected", "found", "lost", "duplicated", "alien"))
    return 0, f"{name}: {numbers}; {len(result['unknown'])} reason(s) for an unknown result"


def recompute(
    spark: SparkSession,
    config: StreamConfig,
    transform: Transform,
    *,
    until: int | None = None,
    scratch: str | None = None,
) -> dict[str, Any]:
    """The missing, duplicated and alien records of the sink, as a JSON document; unknown numbers are None."""
    begun = time.perf_counter()
    result = RecomputeResult(config.name, config.sink)
    recomputation = _Recomputation(spark, config, transform)
    try:
        recomputation.compare(result, until, scratch)
    except CannotTell as e:
        result.unknown.append({"kind": e.kind, "what": e.what, "helps": e.helps})
    result.seconds = round(time.perf_counter() - begun, 3)
    return result.as_dict()


class _Recomputation:
    """One recomputation."""

    def __init__(self, spark: SparkSession, config: StreamConfig, transform: Transform) -> None:
        self.spark, self.config = spark, config
        self.transform = transform
        self.kafka = with_secrets(config.kafka, spark.conf.get(SECRETS_PROPERTY, None))
        self.files = CheckpointFiles(spark, config.checkpoint)

    def compare(self, result: RecomputeResult, until: int | None, scratch: str | None) -> None:
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
            mode = self.config.output_mode or "append"
            expected = replay(self.spark, self.files, stream, bounds.last, f"{place.root.toString()}/{name}", mode)
            self._against_sink(result, expected, bounds)
        finally:
            place.delete_folder(name)

    def _output(self, events: DataFrame) -> DataFrame:
        """The transform's records in the form of the sink. Malformed records are left out as in the stream, and not compared."""
        rows, _ = apply_transform(self.transform, events, self.config, consumed_records(self.files))
        return select_output(rows).select("key", "value")

    def _source(self, ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> DataFrame:
        options = {k: v for k, v in reader_options(self.config, self.kafka).items() if k not in OWN_OPTIONS}
        wanted = {t: {p: b for p, b in ps.items() if b[0] < b[1]} for t, ps in ranges.items()}
        return read_offsets(self.spark, self.kafka, wanted, headers=self.config.include_headers, options=options)

    def _against_sink(self, result: RecomputeResult, expected: DataFrame, bounds: Bounds) -> None:
        wanted = {p: (bounds.start.get(p, 0), end) for p, end in bounds.end.items() if bounds.start.get(p, 0) < end}
        found = read_offsets(self.spark, self.kafka, {self.config.sink: wanted})
        compare_records(result, expected, found)
