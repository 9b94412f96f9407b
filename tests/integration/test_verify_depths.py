"""The deeper verifications on a real broker and a real Spark: recompute, the scan as a Spark job, sinks of others."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import ip_count
import word_count
from airflow_ckpt.checkpoint.files import FsspecFiles
from airflow_ckpt.verify.conclusion import conclude
from airflow_ckpt.verify.foreign import verify_foreign
from airflow_ckpt.verify.plan import Plan
from airflow_ckpt.verify.recompute import verdict_of
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED, Verdict
from airflow_ckpt.verify.verification import Subject, plan, scan_here, verify
from ckpt_stream.recompute import recompute
from ckpt_stream.sink_facts import scans_from_json
from ckpt_stream.sink_job import job_from_json, run_job
from tests.integration.test_applications import MALFORMED, log_line
from tests.integration.test_verify import KIND, Written, kinds, rows
from tests.kafka_io import create_topic, produce
from tests.streams import StreamUnderTest, copy

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Make = Callable[..., StreamUnderTest]

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def recomputed(spark: Any, stream: StreamUnderTest, transform: Any, **settings: Any) -> Verdict:
    """The verdict as the operator gets it: from the result as JSON."""
    return verdict_of(json.dumps(recompute(spark, stream.config(**settings), transform)))


def subject_of(stream: StreamUnderTest) -> Subject:
    files = FsspecFiles(str(stream.checkpoint))
    return Subject(stream.name, stream.kafka, stream.name, stream.sink, stream.name, files)


# Recompute


def test_a_copied_topic_equals_its_recomputation(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2, lanes=2, max_offsets_per_batch=40)
    under_test.feed(*map(str, range(90)), *["same"] * 5)
    produce(under_test.kafka, under_test.source, [(None, "no key"), ("no value", None), (None, None), ("", "")])
    produce(under_test.kafka, under_test.sink, [("before", "the stream began: not its business")])
    assert under_test.drive(spark, copy)[0] == 0
    aborted = Producer({**under_test.kafka, "transactional.id": "aborted"})
    aborted.init_transactions()
    aborted.begin_transaction()
    aborted.produce(under_test.sink, "never seen", "k")
    aborted.flush()
    aborted.abort_transaction()
    verdict = recomputed(spark, under_test, copy)
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.source_records, verdict.recomputed, verdict.sink_committed) == (99, 99, 99)
    assert (verdict.lost, verdict.duplicated, verdict.alien) == (0, 0, 0)
    assert verdict.last_batch == 2


def faulty(events: Any) -> Any:
    """Loses record 7, alters 8, doubles 9, and adds one of its own after 10."""
    from pyspark.sql import functions as F

    value = F.col("value").cast("string")
    results = (
        F.when(value == "7", F.expr("array()").cast("array<string>"))
        .when(value == "8", F.array(F.lit("altered")))
        .when(value == "9", F.array(value, value))
        .when(value == "10", F.array(value, F.lit("alien")))
        .otherwise(F.array(value))
    )
    return events.select("key", F.explode(results).alias("value"))


def test_recompute_finds_what_a_ledger_that_agrees_with_the_sink_hides(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2, audit="record")
    under_test.feed(*map(str, range(50)))
    assert under_test.drive(spark, faulty)[0] == 0
    assert verify(subject_of(under_test)).verdict == CLEAN, "the ledger agrees with the sink: this is the control"
    verdict = recomputed(spark, under_test, copy)
    assert verdict.verdict == VIOLATED
    assert (verdict.lost, verdict.duplicated, verdict.alien) == (2, 1, 2)
    found = sorted((f.kind, f.what.split("value ")[1].split(" ")[0]) for f in verdict.findings)
    assert found == [
        ("alien", "'alien'"),
        ("alien", "'altered'"),
        ("duplicate", "'9'"),
        ("lost", "'7'"),
        ("lost", "'8'"),
    ]
    assert all(f.offset is not None for f in verdict.findings if f.kind != "lost")


def test_closed_windows_with_late_lines_equal_their_recomputation(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late lines are dropped by the stream, and a plain batch over the source would count them."""
    under_test = stream("ip_count", partitions=2)
    for step in range(2):
        moment = START + timedelta(seconds=10 * step)
        lines = [log_line(moment - timedelta(seconds=i % 4), f"10.0.0.{i % 3}", 0) for i in range(20)]
        if step == 1:
            lines += [log_line(START - timedelta(seconds=60), "10.9.9.9", 0)] * 4
        under_test.feed(*lines, *MALFORMED)
        assert under_test.drive(spark, ip_count.transform)[0] == 0
    counts = [json.loads(r.value or b"")["count"] for r in under_test.committed()]
    assert counts, "no window was closed"
    assert sum(counts) < 40, "all windows were closed: nothing is left out"
    verdict = recomputed(spark, under_test, ip_count.transform)
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.recomputed == verdict.sink_committed == len(counts)
    monkeypatch.setattr("ckpt_stream.recompute.keeps_state", lambda rows: False)
    control = recomputed(spark, under_test, ip_count.transform)
    assert control.verdict == VIOLATED, "a plain batch would accuse the stream"
    assert any("10.9.9.9" in f.what for f in control.findings if f.kind == "lost"), control.findings


def test_running_counts_are_replayed_batch_by_batch(spark: Any, stream: Make) -> None:
    """Its output depends on where batches end, and on the record that a failure consumed. Only what is added is a fault."""
    under_test = stream("word_count", max_offsets_per_batch=2, output_mode="update")
    under_test.feed("a a", "b", "ERROR", "a")
    assert under_test.drive(spark, word_count.transform)[0] == 1
    assert under_test.drive(spark, word_count.transform)[0] == 0
    first = under_test.committed()[0]
    produce(under_test.kafka, under_test.sink, [(first.key, first.value), (first.key, '{"word":"a","count":4}')])
    verdict = recomputed(spark, under_test, word_count.transform)
    assert (verdict.recomputed, verdict.sink_committed) == (3, 5)
    assert (verdict.verdict, verdict.lost, verdict.duplicated, verdict.alien) == (VIOLATED, 0, 1, 1), verdict.findings
    assert not list((under_test.checkpoint / "_ckpt").glob("recompute*")), "the scratch folder was left behind"
    (under_test.checkpoint / "offsets" / "0").unlink()
    verdict = recomputed(spark, under_test, word_count.transform)
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, {"checkpoint_history"})


def test_a_source_that_is_gone_is_not_called_clean(spark: Any, stream: Make) -> None:
    under_test = stream()
    assert kinds(recomputed(spark, under_test, copy)) == {"no_batches"}
    under_test.feed(*map(str, range(10)))
    assert under_test.drive(spark, copy)[0] == 0
    admin = AdminClient(dict(under_test.kafka))
    for future in admin.delete_records([TopicPartition(under_test.source, 0, 5)]).values():
        future.result(30)
    verdict = recomputed(spark, under_test, copy)
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, {"source_truncated"})
    assert verdict.lost is None


def test_a_running_stream_is_never_accused(spark: Any, stream: Make) -> None:
    under_test = stream(partitions=2, lanes=2, max_offsets_per_batch=30)
    under_test.feed(*map(str, range(180)))
    thread = threading.Thread(target=lambda: under_test.drive(spark, copy))
    thread.start()
    verdicts = []
    while thread.is_alive():
        verdicts.append(recomputed(spark, under_test, copy))
    thread.join()
    assert not [v.findings for v in verdicts if v.verdict == VIOLATED]
    assert any(v.verdict == CLEAN for v in verdicts), [v.findings for v in verdicts]
    verdict = recomputed(spark, under_test, copy)
    assert (verdict.verdict, verdict.sink_committed) == (CLEAN, 180), verdict.findings


def test_the_application_itself_recomputes_when_its_configuration_says_so(
    spark: Any, stream: Make, tmp_path: Path
) -> None:
    under_test = stream()
    under_test.feed(*map(str, range(10)))
    assert under_test.drive(spark, copy)[0] == 0
    result = tmp_path / "results" / "recompute.json"
    ended = under_test.run(recompute={"result": f"file://{result}"})
    assert ended.code == 0, ended.log
    verdict = verdict_of(result.read_text())
    assert (verdict.verdict, verdict.recomputed) == (CLEAN, 10), verdict.findings
    assert len(under_test.runs()) == 1, "a recomputation is no run of the stream"


# The scan as a Spark job


def _clean(sink: Written) -> None:
    sink.batch(rows(10, 200), commit=False).abort_transaction()
    sink.batch([(None, "x"), ("k", None), (None, None), ("", "")])


def _removed(sink: Written) -> None:
    sink.batch(rows(9, 100), claim=rows(10, 100))
    sink.batch(rows(40, 100), skip_lanes=(1,))


def _replayed(sink: Written) -> None:
    sink.batch(rows(30, 30), number=1, with_ledger=False)


def _altered(sink: Written) -> None:
    sink.batch([*rows(9, 100), ("k", "altered")], claim=rows(10, 100))


def _alien(sink: Written) -> None:
    sink.plain("k1", "v1")
    sink.batch([("k", f"v{i}") for i in range(6)], places=[1, 0, 2])  # two records of each lane have changed places


def _taken_over(sink: Written) -> None:
    sink.format = 1
    sink.take_over("q2")
    sink.batch(rows(40), headers=KIND)
    sink.format = 2
    sink.batch([*rows(30, 40), (None, "x"), ("y", None)], headers=KIND, chosen=[1, 0, 1])


def _taken_over_and_replayed(sink: Written) -> None:
    sink.take_over("q2")
    sink.batch(rows(40))
    sink.batch(rows(30, 40))
    sink.batch(rows(30, 40), number=1, with_ledger=False)
    sink.batch(rows(9), claim=rows(10))


def _header_lost(sink: Written) -> None:
    sink.batch(rows(10), claim_headers=KIND)


def _elsewhere(sink: Written) -> None:
    sink.batch(rows(10), chosen=[0, 1], claim_chosen=[1, 0])


@pytest.mark.parametrize(
    ("fault", "audit", "expected"),
    [
        (_taken_over, True, set()),
        (_taken_over, False, set()),
        (_taken_over_and_replayed, True, {"duplicate", "lost"}),
        (_header_lost, True, {"altered"}),
        (_elsewhere, False, {"altered"}),
        (_clean, True, set()),
        (_clean, False, set()),
        (_removed, True, {"lost", "torn_batch"}),
        (_replayed, True, {"duplicate"}),
        (_replayed, False, {"surplus"}),
        (_altered, False, {"altered"}),
        (_alien, True, {"alien", "out_of_order"}),
    ],
)
def test_the_spark_job_gives_the_same_verdict_as_the_scan_in_process(
    spark: Any, kafka: Any, tmp_path: Path, fault: Callable[[Written], None], audit: bool, expected: set[str]
) -> None:
    sink = Written(kafka.client_config(), lanes=2, partitions=2, audit=audit)
    sink.batch(rows(30))
    sink.batch(rows(30, 30))
    fault(sink)
    made = plan(sink.subject, count_aborted=True)
    here = conclude(made, scan_here(made, sink.kafka))
    kept, result = made.to_json(), tmp_path / "facts" / "scan.json"
    run_job(spark, job_from_json(json.dumps(made.job(sink.kafka, f"file://{result}"))))
    job = conclude(Plan.from_json(kept), scans_from_json(result.read_text()))
    assert told(job) == told(here)
    assert kinds(job) == expected
    assert job.verdict == (VIOLATED if expected else CLEAN)


def told(verdict: Verdict) -> dict[str, Any]:
    """Everything but what depends on the clock, and on which partition was read first."""
    document = {k: v for k, v in verdict.as_dict().items() if k not in ("seconds", "records_per_second")}
    return {**document, "findings": sorted(document["findings"], key=str)}


def test_dead_letters_are_verified_with_the_sink(spark: Any, stream: Make, topics: Callable[..., str]) -> None:
    dead = topics("dead", 2)
    under_test = stream("ip_count", malformed="dead_letter", dead_letter_topic=dead, output_mode="update")
    under_test.feed(log_line(START, "10.0.0.1", 0), *MALFORMED)
    assert under_test.drive(spark, ip_count.transform)[0] == 0
    verdict = verify(subject_of(under_test))
    assert (verdict.verdict, verdict.dead_letters) == (CLEAN, len(MALFORMED)), verdict.findings
    produce(under_test.kafka, dead, [("k", "of another stream")])
    shared = verify(subject_of(under_test))
    assert (shared.verdict, kinds(shared)) == (UNKNOWN, {"dead_letter_surplus"})
    assert verify(subject_of(under_test), dead_letters=False).verdict == CLEAN
    admin = AdminClient(dict(under_test.kafka))
    for future in admin.delete_records([TopicPartition(dead, p, -1) for p in (0, 1)]).values():
        future.result(30)
    assert kinds(verify(subject_of(under_test))) == {"sink_truncated"}


# Sinks of others


@pytest.fixture
def orders(kafka: Any) -> tuple[dict[str, str], str, str]:
    """Twenty orders in a source, by key, and in a sink, by a place in the value."""
    settings = kafka.client_config()
    source, sink = create_topic(settings, "orders", 2), create_topic(settings, "foreign", 2)
    produce(settings, source, [(str(i), "order") for i in range(20)])
    produce(settings, sink, [(f"k{i}", order(i)) for i in range(20)])
    return settings, source, sink


def order(number: int) -> str:
    return json.dumps({"order": {"ids": [number]}, "text": "x"})


PATH = "$.order.ids[0]"


def test_a_sink_of_others_is_clean_against_its_source_and_as_a_sequence(orders: Any) -> None:
    settings, source, sink = orders
    hidden = Producer({**settings, "transactional.id": "foreign-aborted"})
    hidden.init_transactions()
    hidden.begin_transaction()
    hidden.produce(sink, order(3))
    hidden.flush()
    hidden.abort_transaction()
    verdict = verify_foreign(
        settings, sink, id_path=PATH, source=source, source_id_path="key", expected_ids=range(20), sequence=True
    )
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.depth, verdict.sink_committed, verdict.source_records) == ("foreign", 20, 20)
    assert (verdict.lost, verdict.duplicated, verdict.alien) == (0, 0, 0)


def test_duplicates_and_aliens_in_a_sink_of_others_are_found_with_their_place(orders: Any) -> None:
    settings, source, sink = orders
    produce(settings, sink, [(None, order(3)), (None, order(77))])
    verdict = verify_foreign(settings, sink, id_path=PATH, source=source, source_id_path="key")
    assert (verdict.verdict, verdict.duplicated, verdict.alien, verdict.lost) == (VIOLATED, 1, 1, 0)
    assert kinds(verdict) == {"duplicate", "alien"}
    assert all(f.topic == sink and f.offset is not None for f in verdict.findings)


def test_gaps_are_lost_where_the_group_has_committed_and_else_perhaps_late(orders: Any) -> None:
    from confluent_kafka import Consumer

    settings, source, sink = orders
    more = [(str(i), "order") for i in range(20, 26)]
    produce(settings, source, more)
    options: dict[str, Any] = {"id_path": PATH, "source": source, "source_id_path": "key"}
    late = verify_foreign(settings, sink, **options)
    assert (late.verdict, kinds(late), late.lost) == (UNKNOWN, {"not_there_yet"}, 0)
    group = f"writer-{sink}"
    with Consumer({**settings, "group.id": group}) as consumer:
        ends = [
            TopicPartition(source, p, consumer.get_watermark_offsets(TopicPartition(source, p), timeout=10)[1])
            for p in (0, 1)
        ]
        consumer.commit(offsets=ends, asynchronous=False)
    lost = verify_foreign(settings, sink, group=group, **options)
    assert (lost.verdict, kinds(lost), lost.lost) == (VIOLATED, {"lost"}, 6)
    assert {f.topic for f in lost.findings} == {source}
    holes = verify_foreign(settings, source, id_path="key", sequence=True)
    assert holes.verdict == CLEAN
    produce(settings, source, [("30", "order")])
    holes = verify_foreign(settings, source, id_path="key", sequence=True)
    assert (holes.verdict, holes.lost) == (VIOLATED, 4)
    assert "The 4 ids 26 to 29 are missing" in holes.findings[0].what


def test_records_without_an_id_and_too_many_of_them_are_not_called_clean(orders: Any) -> None:
    settings, _, sink = orders
    wrong = verify_foreign(settings, sink, id_path="header:id")
    assert (wrong.verdict, kinds(wrong), wrong.findings[0].records) == (UNKNOWN, {"no_id"}, 20)
    many = verify_foreign(settings, sink, id_path=PATH, max_ids=10)
    assert (many.verdict, kinds(many)) == (UNKNOWN, {"too_many_ids"})
    assert kinds(verify_foreign(settings, "no-such-topic", id_path="key")) == {"no_topic"}
    part = verify_foreign(settings, sink, id_path=PATH, start={0: 1, 1: 1})
    assert (part.verdict, part.sink_committed) == (CLEAN, 18)


def test_the_command_verifies_a_sink_of_others(orders: Any) -> None:
    settings, source, sink = orders
    where = ["--bootstrap", settings["bootstrap.servers"], "--json", "--id", PATH]
    clean = _cli("verify", sink, *where, "--source", source, "--source-id", "key", "--sequence")
    assert clean.returncode == 0, clean.stderr
    assert json.loads(clean.stdout)["source_records"] == 20
    produce(settings, sink, [(None, order(3))])
    twice = _cli("verify", sink, *where)
    assert (twice.returncode, json.loads(twice.stdout)["duplicated"]) == (1, 1)


def _cli(*words: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).parent / "airflow-ckpt"
    return subprocess.run([str(command), *words], capture_output=True, text=True, timeout=60)
