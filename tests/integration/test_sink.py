"""The sink on a real broker with a real Spark: what goes in comes out once, and what Kafka refuses ends in clear words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ckpt_stream.driver.exactly_once import MANY_OFFSETS, into_lanes
from ckpt_stream.protocol.ledger.checksum import checksum_of, weighted_checksum
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, ledger_topic
from ckpt_stream.spark.session import ARROW_BATCH_BYTES, bound_arrow_batches
from tests.support.kafka_io import produce, read_all
from tests.support.streams import StreamUnderTest, copy, numbered

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_record_arrives_once_and_the_ledger_adds_up_to_the_sink(spark: Any, stream: Make, lanes: int) -> None:
    under_test = stream(partitions=3, lanes=lanes, max_offsets_per_batch=200)
    under_test.feed(*numbered(500), keys=23)
    code, line = under_test.drive(spark, copy)
    assert (code, line.split()[-1]) == (0, "FINISHED")
    assert under_test.values() == numbered(500)
    ledger, found = under_test.ledger(), under_test.committed()
    assert sum(r.records for r in ledger) == 500
    assert checksum_of([r.key for r in found], [r.value for r in found]) == sum(r.checksum for r in ledger) % 2**64
    assert {(r.batch, r.lane) for r in ledger} == {(b, lane) for b in range(3) for lane in range(lanes)}
    assert under_test.hidden() == 0


def test_the_source_ranges_of_successive_batches_touch(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2, max_offsets_per_batch=100)
    under_test.feed(*numbered(300))
    under_test.drive(spark, copy)
    ledger = under_test.ledger()
    assert ledger[0].start == {under_test.source: {"0": 0, "1": 0}}
    assert [r.start for r in ledger[1:]] == [r.end for r in ledger[:-1]]


def test_a_lane_without_rows_still_writes_its_ledger_record(spark: Any, stream: Make) -> None:
    under_test = stream(lanes=3)
    under_test.feed(*numbered(50), keys=1)
    under_test.drive(spark, copy)
    assert sorted(r.records for r in under_test.ledger()) == [0, 0, 50]


@pytest.mark.parametrize(
    ("count", "how"), [(MANY_OFFSETS, "Exchange SinglePartition"), (MANY_OFFSETS - 1, "Coalesce 1")]
)
def test_many_records_are_read_by_all_cores_before_one_lane_writes_them(spark: Any, count: int, how: str) -> None:
    rows = into_lanes(spark.range(10), 1, count)
    assert how in rows._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("count", [MANY_OFFSETS, 300])
def test_one_lane_keeps_the_order_of_every_key(spark: Any, stream: Make, count: int) -> None:
    under_test = stream(partitions=3)
    under_test.feed(*numbered(count), keys=100)
    code, line = under_test.drive(spark, copy)
    assert code == 0, line
    assert [(r.batch, r.lane, r.records) for r in under_test.ledger()] == [(0, 0, count)]
    by_key: dict[bytes | None, list[str]] = {}
    for record in under_test.committed():
        by_key.setdefault(record.key, []).append((record.value or b"").decode())
    assert by_key == {f"key-{n}".encode(): numbered(count)[n::100] for n in range(100)}


def test_many_records_of_which_the_transform_leaves_none(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2)
    under_test.feed(*numbered(MANY_OFFSETS))
    code, line = under_test.drive(spark, lambda events: copy(events).where("value is null"))
    assert code == 0, line
    assert [(r.batch, r.lane, r.records) for r in under_test.ledger()] == [(0, 0, 0)]


def test_null_keys_and_null_values_pass_through(spark: Any, stream: Make) -> None:
    under_test = stream(lanes=2)
    produce(under_test.kafka, under_test.source, [(None, "a"), ("k", None), (None, None), ("", ""), ("k", "b")])
    code, line = under_test.drive(spark, copy)
    assert code == 0, line
    found = under_test.committed()
    assert {(r.key, r.value) for r in found} == {(None, b"a"), (b"k", None), (None, None), (b"", b""), (b"k", b"b")}
    assert checksum_of([r.key for r in found], [r.value for r in found]) == sum(
        r.checksum for r in under_test.ledger()
    ) % (2**64)


def test_a_row_that_does_not_say_whether_it_is_a_dead_letter_is_none(
    spark: Any, stream: Make, topics: Callable[..., str]
) -> None:
    under_test = stream(dead_letter_topic=topics("dead", 1), malformed="dead_letter")
    under_test.feed("a", "b")
    flag = F.when(F.col("value") == F.lit("b").cast("binary"), True)
    code, line = under_test.drive(spark, lambda events: copy(events).withColumn("dead_letter", flag))
    assert code == 0, line
    assert under_test.values() == ["a"]
    assert [(r.records, r.dead_letters) for r in under_test.ledger()] == [(1, 1)]


def test_headers_and_explicit_partitions_pass_through(spark: Any, stream: Make) -> None:
    def transform(events: DataFrame) -> DataFrame:
        origin = F.struct(F.lit("origin").alias("key"), F.col("key").alias("value"))
        empty = F.struct(F.lit("empty").alias("key"), F.lit(None).cast("binary").alias("value"))
        partition = F.col("value").cast("string").cast("int") % 3
        return events.select("key", "value", F.array(origin, empty).alias("headers"), partition.alias("partition"))

    under_test = stream(partitions=3)
    under_test.feed(*map(str, range(30)), keys=4)
    code, line = under_test.drive(spark, transform)
    assert code == 0, line
    records = under_test.committed()
    assert len(records) == 30
    assert all(r.partition == int(r.value or b"") % 3 for r in records)
    assert all(r.headers == (("origin", r.key), ("empty", None)) for r in records)
    (ledger,) = under_test.ledger()
    sums = {
        p: checksum_of(*zip(*((r.key, r.value, r.headers) for r in records if r.partition == p), strict=True))
        for p in range(3)
    }
    assert ledger.checksum == sum(sums.values()) % 2**64
    assert ledger.placed == sum(weighted_checksum(checksum, p) for p, checksum in sums.items()) % 2**64


def test_the_audit_header_names_batch_lane_and_place(spark: Any, stream: Make) -> None:
    under_test = stream(audit="record", max_offsets_per_batch=10)
    under_test.feed(*numbered(20))
    under_test.drive(spark, copy)
    places = [dict(r.headers)["ckpt"].decode() for r in under_test.committed()]
    assert places == [f"{batch}/0/{n}" for batch in range(2) for n in range(10)]


def test_keys_land_where_sparks_own_sink_puts_them(spark: Any, stream: Make) -> None:
    ours, sparks = stream(partitions=5), stream(partitions=5, guarantee="at_least_once")
    for under_test in (ours, sparks):
        under_test.feed(*numbered(200), keys=67)
        under_test.checkpoint.mkdir(parents=True, exist_ok=True)
    assert ours.drive(spark, copy)[0] == 0
    assert sparks.drive(spark, copy, checkpoint=str(sparks.folder / "other"))[0] == 0
    where = [{r.key: r.partition for r in s.committed()} for s in (ours, sparks)]
    assert where[0] == where[1]
    assert len(set(where[0].values())) == 5


def test_records_of_aborted_source_transactions_are_not_read(spark: Any, stream: Make) -> None:
    from confluent_kafka import Producer

    under_test = stream()
    producer = Producer({**under_test.kafka, "transactional.id": under_test.source})
    producer.init_transactions()
    for value, commit in (("kept", True), ("dropped", False), ("also kept", True)):
        producer.begin_transaction()
        producer.produce(under_test.source, value)
        producer.commit_transaction() if commit else producer.abort_transaction()
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["also kept", "kept"]


@pytest.mark.parametrize("bound", [{"queue.buffering.max.messages": 50}, {"queue.buffering.max.kbytes": 2}])
def test_a_full_client_queue_is_waited_for(spark: Any, stream: Make, bound: dict[str, int]) -> None:
    under_test = stream()
    under_test.feed(*numbered(3000))
    code, line = under_test.drive(spark, copy, kafka={**under_test.kafka, **bound})
    assert code == 0, line
    assert under_test.values() == numbered(3000)


def test_arrow_batches_of_large_records_are_bounded_in_bytes(spark: Any) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"bytes": [batch.nbytes]})

    session = spark.newSession()
    rows = session.range(150).select(F.repeat(F.lit("x"), 1_000_000).cast("binary").alias("value")).coalesce(1)
    unbounded = [row["bytes"] for row in rows.mapInArrow(sizes, "bytes long").collect()]
    bound_arrow_batches(session)
    bounded = [row["bytes"] for row in rows.mapInArrow(sizes, "bytes long").collect()]
    assert max(bounded) < 2 * ARROW_BATCH_BYTES < max(unbounded)
    assert sum(bounded) >= 150_000_000


def test_lanes_can_be_changed_at_a_clean_stop(spark: Any, stream: Make) -> None:
    under_test = stream()
    for step, lanes in enumerate((1, 3, 2)):
        under_test.feed(*numbered(100, step * 100), keys=29)
        code, line = under_test.drive(spark, copy, lanes=lanes)
        assert code == 0, line
    assert under_test.values() == numbered(300)
    anchors = [(r.batch, r.lanes, r.lane) for r in under_test.ledger() if r.kind == ANCHOR]
    # The lane that is no more is told as well.
    assert sorted(anchors) == [(0, 3, 0), (0, 3, 1), (0, 3, 2), (1, 2, 0), (1, 2, 1), (1, 2, 2)]


def test_old_ledger_records_are_tombstoned(spark: Any, stream: Make) -> None:
    under_test = stream(ledger_history=2, max_offsets_per_batch=10)
    under_test.feed(*numbered(50))
    under_test.drive(spark, copy)
    found = read_all(under_test.kafka, ledger_topic(under_test.name))
    assert [r.key for r in found if r.value is None] == [b"0/0", b"0/1", b"0/2"]


@pytest.mark.parametrize(
    ("size", "changes", "words"),
    [
        (1_200_000, {}, ("MSG_SIZE_TOO_LARGE", "max.message.bytes", "key-0")),
        (10, {"sink": "no-such-topic"}, ("no-such-topic", "does not exist", "kafka-topics.sh --create")),
        (10, {"transaction_timeout": 3600}, ("INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms")),
    ],
)
def test_what_kafka_will_never_take_ends_the_run_with_the_reason(
    spark: Any, stream: Make, size: int, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    under_test = stream()
    under_test.feed("small")

    def transform(events: DataFrame) -> DataFrame:
        return events.select("key", F.expr(f"repeat('x', {size})").alias("value"))

    code, line = under_test.drive(spark, transform, **changes)
    assert code == 1
    assert all(word in line for word in words), line
    failure = under_test.runs()[-1].failure
    assert failure is not None
    assert (failure.error, failure.restart_may_help) == ("SinkRejected", False)
    assert under_test.committed() == []


def test_a_partition_that_does_not_exist_is_an_error_not_a_loop(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2)
    under_test.feed("a")
    code, line = under_test.drive(
        spark, lambda e: e.select("key", "value", F.lit(7).alias("partition")), transaction_timeout=5
    )
    assert code == 1
    assert "partition" in line.lower()
    assert under_test.committed() == []


def test_columns_the_sink_does_not_know_are_named(spark: Any, stream: Make) -> None:
    under_test = stream()
    under_test.feed("a")
    code, line = under_test.drive(spark, lambda e: e.select("key", "value", F.lit(1).alias("weight")))
    assert code == 1
    assert "weight" in line
