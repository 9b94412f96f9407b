"""The three applications, against results that were computed without them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import copy_topic
import ip_count
import word_count
from ckpt_stream import fail_on
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.spark.record_rules import TransformContext, transform_context
from tests.support.kafka_io import read_all
from tests.support.streams import StreamUnderTest

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def log_line(moment: datetime, ip: str, kind: int) -> str:
    """The same request as a common log line, a combined one, or JSON with a time of either kind."""
    stamp = f"{moment:%d}/{MONTHS[moment.month - 1]}/{moment:%Y:%H:%M:%S} +0000"
    common = f'{ip} - - [{stamp}] "GET /index.html?q=\\"x\\" HTTP/1.1" 200 512'
    return [
        common,
        f'{common} "https://example.org/" "Mozilla/5.0 (X11; Linux x86_64)"',
        json.dumps({"time": moment.isoformat(), "ip": ip}),
        json.dumps({"time": moment.timestamp(), "ip": ip}),
    ][kind]


MALFORMED = [
    "",
    "not a log line",
    '{"time": "yesterday", "ip": "10.0.0.1"}',
    '{"ip": "10.0.0.1"}',
    '{"time": "2026-03-01T12:00:00Z", "ip": "ten"}',
    '10.0.0.1 - - [99/Mar/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1',
    "{broken",
]


def window_of(moment: datetime) -> datetime:
    return moment - timedelta(seconds=moment.timestamp() % 5)


def test_ip_count_equals_an_independent_count(spark: Any, stream: Make) -> None:
    """Lines out of order within the lateness count, lines later than it do not, malformed ones are counted apart."""
    chance = random.Random(7)
    ips = ["10.0.0.1", "192.168.7.9", "2001:db8::1", "203.0.113.77"]
    under_test = stream("ip_count", max_offsets_per_batch=None)
    expected: Counter[tuple[str, datetime]] = Counter()
    for step in range(6):
        base = START + timedelta(seconds=10 * step)
        lines = []
        for _ in range(200):
            # Up to 4 s older than the newest: inside the lateness of 5 s.
            moment = base + timedelta(seconds=chance.randint(-4, 0) if step else 0)
            ip = chance.choice(ips)
            expected[ip, window_of(moment)] += 1
            lines.append(log_line(moment, ip, chance.randrange(4)))
        if step > 2:
            lines += [log_line(START, ip, 0) for ip in ips]  # far too late: their window is closed
        lines += MALFORMED
        chance.shuffle(lines)
        under_test.feed(*lines)
        # One batch per step, so that the watermark moves in a known way.
        assert under_test.drive(spark, ip_count.transform)[0] == 0
    under_test.feed(log_line(START + timedelta(hours=1), "10.9.9.9", 0))
    assert under_test.drive(spark, ip_count.transform)[0] == 0
    seen: Counter[tuple[str, datetime]] = Counter()
    for record in under_test.committed():
        value = json.loads(record.value or b"")
        assert record.key == value["ip"].encode()
        seen[value["ip"], datetime.fromisoformat(value["window_start"])] += value["count"]
    assert seen == expected
    assert len(under_test.committed()) == len(expected), "a window and IP gives one final record"
    assert sum(r.totals.get("malformed", 0) for r in under_test.runs()) == 6 * len(MALFORMED)


def test_ip_count_can_update_instead_of_append(spark: Any, stream: Make) -> None:
    under_test = stream("ip_count", output_mode="update")
    for _ in range(2):
        under_test.feed(log_line(START, "10.0.0.1", 0))
        assert under_test.drive(spark, ip_count.transform)[0] == 0
    assert [json.loads(r.value or b"")["count"] for r in under_test.committed()] == [1, 2]


def test_malformed_lines_go_to_the_dead_letter_topic_in_the_same_transaction(
    spark: Any, stream: Make, topics: Callable[..., str]
) -> None:
    dead = topics("dead")
    under_test = stream("ip_count", malformed="dead_letter", dead_letter_topic=dead, output_mode="update")
    under_test.feed(log_line(START, "10.0.0.1", 0), *MALFORMED)
    code, line = under_test.drive(spark, ip_count.transform)
    assert code == 0, line
    assert sorted((r.value or b"").decode() for r in read_all(under_test.kafka, dead)) == sorted(MALFORMED)
    # A second batch without data moves the watermark.
    assert [r.dead_letters for r in under_test.ledger()] == [len(MALFORMED), 0]
    assert [r.records for r in under_test.ledger()] == [1, 0]


def test_a_malformed_line_can_end_the_run_with_its_place(spark: Any, stream: Make) -> None:
    under_test = stream("ip_count", malformed="fail")
    under_test.feed(log_line(START, "10.0.0.1", 0), "not a log line")
    code, line = under_test.drive(spark, ip_count.transform)
    assert code == 1
    failure = under_test.runs()[-1].failure
    assert failure is not None
    assert failure.error == "PoisonRecord"
    assert failure.poison is not None
    assert (failure.poison["topic"], failure.poison["partition"], failure.poison["offset"]) == (under_test.source, 0, 1)
    assert failure.restart_may_help is False
    assert f"{under_test.source}-0 offset 1" in line


def words_of(stream: StreamUnderTest) -> list[tuple[str, int]]:
    values = [json.loads(r.value or b"") for r in stream.committed()]
    return [(v["word"], v["count"]) for v in values]


def test_the_word_count_table_record_for_record(spark: Any, stream: Make) -> None:
    """a a b ERROR b a ERROR a ERROR b ERROR: state survives each failure, and only the ERRORs are consumed by one."""
    under_test = stream("word_count", max_offsets_per_batch=1, output_mode="update")
    steps: list[tuple[str, tuple[str, int] | None]] = [
        ("a", ("a", 1)), ("a", ("a", 2)), ("b", ("b", 1)), ("ERROR", None), ("b", ("b", 2)), ("a", ("a", 3)),
        ("ERROR", None), ("a", ("a", 4)), ("ERROR", None), ("b", ("b", 3)), ("ERROR", None),
    ]  # fmt: skip
    expected: list[tuple[str, int]] = []
    for word, counted in steps:
        under_test.feed(word)
        code, line = under_test.drive(spark, word_count.transform)
        if counted is None:
            assert code == 1
            assert "the word ERROR" in line
        else:
            assert code == 0, line
            expected.append(counted)
        assert words_of(under_test) == expected
    poison = record_files.list_from_json((under_test.checkpoint / record_files.POISON).read_text(), "poison records")
    assert [p["offset"] for p in poison] == [3, 6, 8, 10]


@pytest.mark.slow
def test_every_occurrence_gives_a_record_when_every_record_is_a_batch(stream: Make) -> None:
    """As a driver of its own, where the application itself says the output mode."""
    under_test = stream("word_count", max_offsets_per_batch=1)
    under_test.feed("a", "a", "b", "a")
    ended = under_test.run()
    assert ended.code == 0, ended.log[-3000:]
    assert words_of(under_test) == [("a", 1), ("a", 2), ("b", 1), ("a", 3)]
    assert ended.last_line.endswith("FINISHED")


def test_words_beside_an_error_are_counted_after_the_restart(spark: Any, stream: Make) -> None:
    under_test = stream("word_count", output_mode="update")
    under_test.feed("a", "b a", "ERROR", "c", "ERROR", "a")
    lines = [under_test.drive(spark, word_count.transform)[1] for _ in range(3)]
    assert ["the word ERROR" in line for line in lines] == [True, True, False]
    assert lines[-1].endswith("FINISHED"), lines
    assert sorted(words_of(under_test)) == [("a", 3), ("b", 1), ("c", 1)]


def test_copy_fails_at_the_eighth_record_once_and_then_copies_it(spark: Any, stream: Make) -> None:
    values = [f"value-{i:02d}" for i in range(12)]
    under_test = stream("copy_topic", max_offsets_per_batch=5, options={"fail_at": 8})
    under_test.feed(*values)
    code, line = under_test.drive(spark, copy_topic.transform)
    assert code == 1
    assert "record 8 arrived" in line
    assert under_test.values() == values[:5], "the batch with the eighth record must not be there"
    assert under_test.drive(spark, copy_topic.transform)[0] == 0
    assert under_test.values() == values


def test_copy_keeps_headers_when_the_stream_reads_them(spark: Any, stream: Make) -> None:
    from confluent_kafka import Producer

    under_test = stream("copy_topic", include_headers=True)
    producer = Producer(dict(under_test.kafka))
    producer.produce(under_test.source, "v", "k", headers=[("trace", b"1"), ("trace", b"2")])
    producer.flush()
    assert under_test.drive(spark, copy_topic.transform)[0] == 0
    assert [r.headers for r in under_test.committed()] == [(("trace", b"1"), ("trace", b"2"))]


def test_thousands_of_consumed_records_make_no_deep_plan_and_exactly_they_are_left_out(spark: Any) -> None:
    from pyspark.sql import functions as F

    place = [{"topic": "a", "partition": p, "offset": o} for p in range(2) for o in range(0, 4000, 2)]
    rows = spark.range(4000).selectExpr("'a' as topic", "int(id % 3) as partition", "id as offset", "id as value")
    with transform_context(TransformContext(consumed=place)):
        left = fail_on(rows, F.col("partition") < 0, "never")
        kept = fail_on(rows, F.col("partition") < 0, "never", keep=True)
    assert left.count() == sum(not (n % 3 < 2 and n % 2 == 0) for n in range(4000))
    assert kept.count() == 4000
