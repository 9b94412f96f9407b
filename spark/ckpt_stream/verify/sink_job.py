"""The scan of a sink as a Spark batch job, for ranges that are too large for the scan in one process; the result is the same.

The job gets one JSON document (first argument, ``@file`` or environment, like a stream): topics, offsets, where each batch
begins, and which lanes have audit headers. It writes its result as JSON; the verification that submitted it draws the
conclusion.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt_stream.errors import ConfigError
from ckpt_stream.machine.application_input import delete_secrets_file, find_document, with_secrets
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER
from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.protocol.settings.secret_names import is_secret
from ckpt_stream.protocol.verification.audit import NONE
from ckpt_stream.protocol.verification.scan_result import Boundaries, ExpectedLane, ExpectedLanes, Scan, scans_to_json
from ckpt_stream.spark.hadoop_files import CheckpointFiles
from ckpt_stream.spark.kafka_ranges import read_offsets
from ckpt_stream.spark.record_hash import record_hash_column
from ckpt_stream.spark.session import redacting_session
from ckpt_stream.verify.scan_tasks import (
    LANES_SCHEMA,
    NAME_COLUMNS,
    SUMS_SCHEMA,
    Collector,
    audit_lane,
    gather_lanes,
    gather_sums,
    hash_name,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("ckpt_stream")

#: The audit header's three numbers, as a regular expression for Java; with `\\z`, because `$` also matches before a line's end.
NAME_IN_JAVA = r"^\d{1,18}/\d{1,18}/\d{1,18}\z"


@dataclass(frozen=True)
class TopicRange:
    """One topic to be read, from start to end of each partition."""

    topic: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    boundaries: Boundaries
    #: None: the records have no audit header.
    expected: ExpectedLanes | None = None
    #: Also count the records that a reader with read_uncommitted sees, aborted copies included.
    count_aborted: bool = False

    @property
    def formats(self) -> list[int]:
        """The ledger formats by which records are hashed."""
        return sorted(set(self.boundaries.formats) or {self.boundaries.format_of(None)})


@dataclass(frozen=True)
class ScanJob:
    """The document of the job."""

    name: str
    kafka: Mapping[str, Any]
    result: str
    topics: tuple[TopicRange, ...]


def job_from_json(text: str) -> ScanJob:
    """Read the job's document."""
    try:
        document = json.loads(text)
        topics = tuple(_topic_range(t) for t in document["targets"])
        job = ScanJob(str(document["name"]), document["kafka"], str(document["result"]), topics)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"The job's document cannot be read: {type(e).__name__}: {e}") from e
    if leaked := sorted(name for name in job.kafka if is_secret(name)):
        raise ConfigError(
            f"The job's document holds secrets ({', '.join(leaked)}): pass them as the Spark property {SECRETS_PROPERTY}."
        )
    return job


def _topic_range(document: Mapping[str, Any]) -> TopicRange:
    start, end, offsets = ({int(p): o for p, o in document[name].items()} for name in ("start", "end", "offsets"))
    lanes = document["lanes"]
    expected = None if lanes is None else ExpectedLanes([ExpectedLane(*map(int, lane)) for lane in lanes])
    boundaries = Boundaries(offsets, document["formats"])
    return TopicRange(document["topic"], start, end, boundaries, expected, bool(document.get("count_aborted", False)))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the job that the document describes. Exit code 0 means that the result was written."""
    delete_secrets_file()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        job = job_from_json(find_document(sys.argv if argv is None else argv))
    except ConfigError as e:
        print(f"ckpt_stream: {e}", file=sys.stderr, flush=True)
        sys.exit(2)
    spark = redacting_session(job.name)
    try:
        scans = run_job(spark, job)
    except Exception as e:
        log.exception("the scan failed")
        print(f"ckpt_stream: {job.name} FAILED: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        spark.stop()
    print(f"ckpt_stream: {job.name}: {sum(s.records for s in scans)} record(s) read", file=sys.stderr, flush=True)
    sys.exit(0)


def run_job(spark: SparkSession, job: ScanJob) -> list[Scan]:
    """Read every topic of the job, and write the results to its file."""
    kafka = with_secrets(job.kafka, spark.conf.get(SECRETS_PROPERTY, None))
    scans = [scan_topic(spark, kafka, topic_range) for topic_range in job.topics]
    write_result(spark, job.result, scans_to_json(scans))
    return scans


def write_result(spark: SparkSession, path: str, text: str) -> None:
    """Write a result completely or not at all, on any storage that Spark supports."""
    folder, _, name = path.rpartition("/")
    CheckpointFiles(spark, folder or ".").write(name, text)


def read_topic(
    spark: SparkSession, kafka: Mapping[str, Any], topic_range: TopicRange, *, isolation: str = "read_committed"
) -> DataFrame:
    """Read a topic exactly from start to end of each partition; it is an error if records of the range are gone."""
    wanted = {
        p: (topic_range.start.get(p, 0), stop)
        for p, stop in topic_range.end.items()
        if topic_range.start.get(p, 0) < stop
    }
    return read_offsets(spark, kafka, {topic_range.topic: wanted}, isolation=isolation, headers=_headers(topic_range))


def _headers(topic_range: TopicRange) -> bool:
    """Since format 2 the headers are a part of a record's hash."""
    return topic_range.expected is not None or max(topic_range.formats) > 1


def scan_topic(spark: SparkSession, kafka: Mapping[str, Any], topic_range: TopicRange) -> Scan:
    """The scan of one topic."""
    begun = time.perf_counter()
    boundaries, expected = topic_range.boundaries, topic_range.expected
    rows = _named(read_topic(spark, kafka, topic_range), topic_range)
    found = rows.mapInArrow(Collector(boundaries, expected), SUMS_SCHEMA).collect()
    scan = gather_sums(found, topic_range.topic, expected)
    if expected is not None and scan.audit is not None:
        gather_lanes(_lanes(spark, rows, boundaries, expected), boundaries, expected, scan.audit)
    scan.seconds = time.perf_counter() - begun
    if topic_range.count_aborted:
        scan.uncommitted = read_topic(spark, kafka, topic_range, isolation="read_uncommitted").count()
    return scan


def _named(records: DataFrame, topic_range: TopicRange) -> DataFrame:
    """Place and hash of each record and, if it has an audit header, the name in it."""
    from pyspark.sql import functions as F

    columns = [F.col("partition").cast("long").alias("partition"), F.col("offset")]
    headers = "headers" if _headers(topic_range) else None
    columns += [record_hash_column("key", "value", headers, f).alias(hash_name(f)) for f in topic_range.formats]
    if topic_range.expected is not None:
        ours = F.filter("headers", lambda h: (h["key"] == AUDIT_HEADER) & h["value"].isNotNull())
        text = F.get(ours, F.lit(0))["value"].cast("string")
        parts = F.split(F.when(text.rlike(NAME_IN_JAVA), text), "/")
        for number, name in enumerate(NAME_COLUMNS):
            part = F.get(parts, F.lit(number)).try_cast("long")
            columns.append(F.coalesce(part, F.lit(NONE).cast("long")).alias(name))
    return records.select(*columns)


def _lanes(spark: SparkSession, rows: DataFrame, boundaries: Boundaries, expected: ExpectedLanes) -> list[Any]:
    """One row for each lane of a batch that was seen, and one row for each faulty record of it."""
    from pyspark.sql import functions as F

    known = [
        (query, batch, lane, index, expected.records[index, lane])
        for query, meanings in enumerate(expected.meanings)
        for (batch, lane), index in meanings.items()
    ]
    if not known:
        return []
    schema = "query long, batch long, lane long, index long, expected long"
    claimed = F.broadcast(spark.createDataFrame(known, schema))
    named = rows.withColumn("query", _query(boundaries, expected)).join(claimed, ["query", "batch", "lane"])
    wanted = named.filter("place < expected").select("index", "lane", "partition", "offset", "place", "expected")
    found: list[Any] = wanted.groupBy("index", "lane").applyInArrow(audit_lane, LANES_SCHEMA).collect()
    return found


def _query(boundaries: Boundaries, expected: ExpectedLanes) -> Column:
    """The index of the query in whose range a record lies: the number of queries before it."""
    from pyspark.sql import functions as F

    query = F.lit(0).cast("long")
    for begin in expected.begins[1:]:
        for partition, offsets in boundaries.offsets.items():
            behind = (F.col("partition") == partition) & (F.col("offset") >= offsets[begin])
            query += behind.cast("long")
    return query


# An installed wheel has no folder of applications: there, this file itself is submitted.
if __name__ == "__main__":
    main()
