"""Recomputation on a real broker and a real Spark."""

from __future__ import annotations

import json
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
from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.recompute_verdict import verdict_of
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED, Verdict
from airflow_ckpt.verify.verification import verify
from ckpt_stream.verify.recompute import recompute
from tests.integration.test_applications import MALFORMED, log_line
from tests.support.kafka_io import produce
from tests.support.streams import StreamUnderTest, copy
from tests.support.written_sink import kinds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Make = Callable[..., StreamUnderTest]

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def recomputed(spark: Any, stream: StreamUnderTest, transform: Any, **settings: Any) -> Verdict:
    """The verdict as the operator gets it: from the result as JSON."""
    return verdict_of(json.dumps(recompute(spark, stream.config(**settings), transform)))


def subject_of(stream: StreamUnderTest) -> Subject:
    files = FsspecFiles(str(stream.checkpoint))
    return Subject(stream.name, stream.kafka, stream.name, stream.sink, stream.name, files)


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
    monkeypatch.setattr("ckpt_stream.verify.recompute.keeps_state", lambda rows: False)
    control = recomputed(spark, under_test, ip_count.transform)
    assert control.verdict == VIOLATED, "a plain batch would find violations"
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


def test_a_running_stream_is_never_violated(spark: Any, stream: Make) -> None:
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
