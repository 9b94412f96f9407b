"""The scan of a sink as a Spark batch job: the same facts as the scan in one process, for ranges that are too large for it.

The job gets one JSON document (first argument, ``@file`` or environment, as a stream does): topics, offsets, where each
batch begins, and which lanes have audit headers. It writes its facts as JSON; the verification that
submitted it draws the conclusion.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ckpt_stream.checksum import AUDIT_HEADER, record_hash_column
from ckpt_stream.config import SECRETS_PROPERTY, delete_secrets_file, find_document, with_secrets
from ckpt_stream.errors import ConfigError
from ckpt_stream.files import CheckpointFiles
from ckpt_stream.redaction import session
from ckpt_stream.security import is_secret, java_settings
from ckpt_stream.sink_arrays import LANES_SCHEMA, NONE, SUMS_SCHEMA, Collector, account_lane, hash_name
from ckpt_stream.sink_facts import (
    ALIEN,
    DUPLICATE,
    LISTED,
    NAMED,
    OUT_OF_ORDER,
    AuditFacts,
    Boundaries,
    Claim,
    Claims,
    Example,
    LaneSeen,
    Scan,
    Sums,
    scans_to_json,
)
from ckpt_stream.source import FETCH_DEFAULTS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("ckpt_stream")

#: The audit header's three numbers as Java's regular expressions have them; `\\z`, since `$` lets a line's end pass.
NAME_IN_JAVA = r"^\d{1,18}/\d{1,18}/\d{1,18}\z"


@dataclass(frozen=True)
class Target:
    """One topic to be read, from start to end of each partition."""

    topic: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    boundaries: Boundaries
    #: None: the records have no audit header.
    claims: Claims | None = None
    #: Read it once more, with the aborted copies that read_committed hides.
    count_aborted: bool = False

    @property
    def formats(self) -> list[int]:
        """The ledger formats by which records are hashed."""
        return sorted(set(self.boundaries.formats) or {self.boundaries.format_of(None)})


@dataclass(frozen=True)
class Job:
    name: str
    kafka: Mapping[str, Any]
    result: str
    targets: tuple[Target, ...]


def job_from_json(text: str) -> Job:
    """Read the job's document."""
    try:
        document = json.loads(text)
        targets = tuple(_target(t) for t in document["targets"])
        job = Job(str(document["name"]), document["kafka"], str(document["result"]), targets)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ConfigError(f"The job's document cannot be read: {type(e).__name__}: {e}") from e
    if leaked := sorted(name for name in job.kafka if is_secret(name)):
        raise ConfigError(
            f"The job's document holds secrets ({', '.join(leaked)}): pass them as the Spark property {SECRETS_PROPERTY}."
        )
    return job


def _target(document: Mapping[str, Any]) -> Target:
    start, end, offsets = ({int(p): o for p, o in document[name].items()} for name in ("start", "end", "offsets"))
    lanes = document["lanes"]
    claims = None if lanes is None else Claims([Claim(*map(int, lane)) for lane in lanes])
    boundaries = Boundaries(offsets, document["formats"])
    return Target(document["topic"], start, end, boundaries, claims, bool(document.get("count_aborted", False)))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Do the job that the document describes; the exit code says whether its result was written, not what it is."""
    delete_secrets_file()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        job = job_from_json(find_document(sys.argv if argv is None else argv))
    except ConfigError as e:
        print(f"ckpt_stream: {e}", file=sys.stderr, flush=True)
        sys.exit(2)
    spark = session(job.name)
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


def run_job(spark: SparkSession, job: Job) -> list[Scan]:
    """Read every topic of the job, and write the facts to its result file."""
    kafka = with_secrets(job.kafka, spark.conf.get(SECRETS_PROPERTY, None))
    scans = [scan_topic(spark, kafka, target) for target in job.targets]
    write_result(spark, job.result, scans_to_json(scans))
    return scans


def write_result(spark: SparkSession, path: str, text: str) -> None:
    """Write a result whole or not at all, wherever Spark can write."""
    folder, _, name = path.rpartition("/")
    CheckpointFiles(spark, folder or ".").write(name, text)


def read_topic(
    spark: SparkSession, kafka: Mapping[str, Any], target: Target, *, isolation: str = "read_committed"
) -> DataFrame:
    """A topic from start to end of each partition, exactly: what is no longer there is an error, never passed over."""
    wanted = {p: (target.start.get(p, 0), stop) for p, stop in target.end.items() if target.start.get(p, 0) < stop}
    return read_offsets(spark, kafka, {target.topic: wanted}, isolation=isolation, headers=_headers(target))


def _headers(target: Target) -> bool:
    """Since format 2 the headers are a part of a record's hash."""
    return target.claims is not None or max(target.formats) > 1


def read_offsets(
    spark: SparkSession,
    kafka: Mapping[str, Any],
    ranges: Mapping[str, Mapping[int, tuple[int, int]]],
    *,
    isolation: str = "read_committed",
    headers: bool = False,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A batch over ``{topic: {partition: (start, end)}}``; nothing at all gives a frame without rows."""
    known = {topic: partitions for topic, partitions in ranges.items() if partitions}
    settings = {
        **FETCH_DEFAULTS,
        **{f"kafka.{name}": value for name, value in java_settings(kafka).items()},
        **(options or {}),
        "kafka.isolation.level": isolation,
        "failOnDataLoss": "true",
        "includeHeaders": str(headers).lower(),
    }
    if known:
        settings["assign"] = json.dumps({topic: sorted(partitions) for topic, partitions in known.items()})
        for number, option in enumerate(("startingOffsets", "endingOffsets")):
            offsets = {t: {str(p): bounds[number] for p, bounds in ps.items()} for t, ps in known.items()}
            settings[option] = json.dumps(offsets)
        return spark.read.format("kafka").options(**settings).load()
    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
    )
    schema += ", headers array<struct<key:string,value:binary>>" if headers else ""
    return spark.createDataFrame([], schema)


def scan_topic(spark: SparkSession, kafka: Mapping[str, Any], target: Target) -> Scan:
    """The facts about one topic."""
    begun = time.perf_counter()
    rows = _named(read_topic(spark, kafka, target), target)
    found = rows.mapInArrow(Collector(target.boundaries, target.claims), SUMS_SCHEMA).collect()
    scan = gather_sums(found, target)
    if target.claims is not None and scan.audit is not None:
        gather_lanes(_lanes(spark, rows, target, target.claims), target, scan.audit)
    scan.seconds = time.perf_counter() - begun
    if target.count_aborted:
        scan.uncommitted = read_topic(spark, kafka, target, isolation="read_uncommitted").count()
    return scan


def _named(records: DataFrame, target: Target) -> DataFrame:
    """Place and hash of each record and, where it has an audit header, what that names."""
    from pyspark.sql import functions as F

    columns = [F.col("partition").cast("long").alias("partition"), F.col("offset")]
    headers = "headers" if _headers(target) else None
    columns += [record_hash_column("key", "value", headers, f).alias(hash_name(f)) for f in target.formats]
    if target.claims is not None:
        ours = F.filter("headers", lambda h: (h["key"] == AUDIT_HEADER) & h["value"].isNotNull())
        text = F.get(ours, F.lit(0))["value"].cast("string")
        parts = F.split(F.when(text.rlike(NAME_IN_JAVA), text), "/")
        for number, name in enumerate(("batch", "lane", "place")):
            part = F.get(parts, F.lit(number)).try_cast("long")
            columns.append(F.coalesce(part, F.lit(NONE).cast("long")).alias(name))
    return records.select(*columns)


def _lanes(spark: SparkSession, rows: DataFrame, target: Target, claims: Claims) -> list[Any]:
    """One row for each lane of a batch that was seen, and one for each of its records that is not as it should be."""
    from pyspark.sql import functions as F

    known = [
        (era, batch, lane, turn, claims.records[turn, lane])
        for era, turns in enumerate(claims.turns)
        for (batch, lane), turn in turns.items()
    ]
    if not known:
        return []
    schema = "era long, batch long, lane long, turn long, expected long"
    claimed = F.broadcast(spark.createDataFrame(known, schema))
    named = rows.withColumn("era", _era(target.boundaries, claims)).join(claimed, ["era", "batch", "lane"])
    wanted = named.filter("place < expected").select("turn", "lane", "partition", "offset", "place", "expected")
    found: list[Any] = wanted.groupBy("turn", "lane").applyInArrow(account_lane, LANES_SCHEMA).collect()
    return found


def _era(boundaries: Boundaries, claims: Claims) -> Column:
    """The era in whose place a record lies: how many queries took over before it."""
    from pyspark.sql import functions as F

    era = F.lit(0).cast("long")
    for begin in claims.begins[1:]:
        for partition, offsets in boundaries.offsets.items():
            behind = (F.col("partition") == partition) & (F.col("offset") >= offsets[begin])
            era += behind.cast("long")
    return era


def gather_sums(rows: Iterable[Any], target: Target) -> Scan:
    """Put together what the tasks found."""
    scan = Scan(topic=target.topic, audit=None if target.claims is None else AuditFacts())
    aliens: list[Example] = []
    for row in rows:
        if row["kind"] == "sum":
            scan.batches.setdefault(row["here"], Sums()).add(row["records"], row["checksum"], row["partition"])
            scan.records += row["records"]
        elif row["kind"] == "aliens" and scan.audit is not None:
            scan.audit.counts[ALIEN] += row["records"]
        else:
            name = None if row["batch"] == NONE else (row["batch"], row["lane"], row["place"])
            turn = target.claims.meant(name, row["here"]) if target.claims and name else None
            aliens.append(Example(ALIEN, row["partition"], row["offset"], row["here"], name, turn))
    if scan.audit is not None:
        scan.audit.examples += _first(aliens)
    return scan


def gather_lanes(rows: Iterable[Any], target: Target, facts: AuditFacts) -> None:
    """Add what the lanes of the batches show; a lane of which nothing was seen has no row."""
    claims = target.claims or Claims(())
    numbers = {claim.turn: claim.batch for claim in claims.all}
    seen: dict[tuple[int, int], Any] = {}
    examples: dict[str, list[Example]] = {DUPLICATE: [], OUT_OF_ORDER: []}
    for row in rows:
        turn, lane, kind = row["turn"], row["lane"], row["kind"]
        if kind == "seen":
            seen[turn, lane] = row
        elif row["partition"] is None:
            facts.counts[kind] += row["records"]
        else:
            here, _ = target.boundaries.turn(row["partition"], row["offset"])
            name = (numbers[turn], lane, row["place"])
            examples[kind].append(Example(kind, row["partition"], row["offset"], here, name, turn))
    for found in examples.values():
        facts.examples += _first(found)
    for (turn, lane), expected in claims.records.items():
        row = seen.get((turn, lane))
        count = row["records"] if row is not None else 0
        if count < expected:
            missing = row["missing"] if row is not None else range(min(NAMED, expected))
            facts.incomplete.append(LaneSeen(turn, lane, count, tuple(missing)))


def _first(examples: Iterable[Example]) -> list[Example]:
    return sorted(examples, key=lambda e: (e.partition, e.offset))[:LISTED]


# An installed wheel has no folder of applications: there, this file itself is submitted.
if __name__ == "__main__":
    main()
