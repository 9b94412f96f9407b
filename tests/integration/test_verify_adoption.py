"""Verifications of a sink that two queries wrote, one after the other: the checkpoint was lost, and `start="ledger"` went on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.recompute_verdict import verdict_of
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED, Verdict
from airflow_ckpt.verify.verification import verify
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER
from ckpt_stream.protocol.run_files import record_files
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from ckpt_stream.verify.recompute import recompute
from tests.support.streams import StreamUnderTest, copy
from tests.support.written_sink import Written, kinds, rows

pytestmark = pytest.mark.integration


def test_a_stream_that_went_on_from_its_ledger_is_clean_at_every_depth(
    spark: Any, stream: Callable[..., StreamUnderTest]
) -> None:
    under_test = stream(partitions=2, lanes=2, max_offsets_per_batch=40, audit="record")
    under_test.feed(*map(str, range(100)), keys=31)
    assert under_test.drive(spark, copy)[0] == 0
    shutil.rmtree(under_test.checkpoint)
    under_test.feed(*map(str, range(100, 160)), keys=31)
    assert under_test.drive(spark, copy, start="ledger")[0] == 0
    under_test.feed(*map(str, range(160, 180)), keys=31)
    assert under_test.drive(spark, copy)[0] == 0
    files = FsspecFiles(str(under_test.checkpoint))
    subject = Subject("s", under_test.kafka, under_test.name, under_test.sink, under_test.name, files)
    for depth in ("ledger", "sink"):
        verdict = verify(subject, depth=depth)
        assert verdict.verdict == CLEAN, verdict.findings
        assert (verdict.ledger_records, verdict.source_records) == (180, 180)
    assert (verdict.sink_committed, verdict.lost, verdict.duplicated, verdict.alien) == (180, 0, 0, 0)
    assert len(verdict.queries) == 2
    recomputed = verdict_of(json.dumps(recompute(spark, under_test.config(), copy)))
    assert recomputed.verdict == CLEAN, recomputed.findings
    assert recomputed.sink_committed == 80, "what the lost checkpoint's query wrote is not counted"
    files.remove(record_files.ADOPTION)
    texts = {f.kind: f.what for f in verify(subject, depth="ledger").findings}
    assert set(texts) <= {"foreign_ledger"}, "the ledger itself may say so"


@pytest.fixture(params=[True, False], ids=["audited", "sums only"])
def sink(request: pytest.FixtureRequest, kafka: Any) -> Written:
    return Written(kafka.client_config(), audit=request.param, lanes=2)


def adopted(sink: Written, fault: Callable[[Written], None] | None = None, query_index: int = 0) -> Verdict:
    """Two queries with three batches each; one batch 1 gets the fault's place."""
    for query in ("q", "q2"):
        sink.batch(rows(20))
        if fault is not None and (query == "q2") == bool(query_index):
            fault(sink)
        else:
            sink.batch(rows(20, 20))
        sink.batch(rows(20, 40))
        if query == "q":
            sink.take_over("q2")
    return sink.verdict()


def test_batches_of_the_same_numbers_are_told_apart(sink: Written) -> None:
    verdict = adopted(sink)
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.sink_committed, verdict.lost, verdict.duplicated) == (120, 0, 0)
    assert [(b.query, b.batch, b.found) for b in verdict.batches[2:4]] == [("q", 2, 20), ("q2", 0, 20)]
    assert verdict.queries == [{"query_id": "q", "first": 0, "last": 2}, {"query_id": "q2", "first": 0, "last": 2}]
    assert verdict.verified_until == {"batch": 2, "query_id": "q2"}
    assert sink.verdict(batches=BatchRange(after=0)).sink_committed == 40, "a number is one of the newest query"
    assert sink.verdict(batches=BatchRange(after=0, query="q")).sink_committed == 100
    assert sink.verdict(batches=BatchRange(after=2, query="q", until=0)).sink_committed == 20


def lose_one(sink: Written) -> None:
    sink.batch(rows(19, 20), claim=rows(20, 20))


def double_one(sink: Written) -> None:
    sink.batch(rows(20, 20))
    producer = Producer({**sink.kafka, "partitioner": "murmur2_random"})
    headers = [(AUDIT_HEADER, b"1/0/0")] if sink.audit else None
    producer.produce(sink.sink, "v20", "k6", headers=headers)
    producer.flush()


@pytest.mark.parametrize("query_index", [0, 1], ids=["before", "after"])
@pytest.mark.parametrize(
    ("fault", "by_name", "by_sum"), [(lose_one, "lost", "lost"), (double_one, "duplicate", "surplus")]
)
def test_a_fault_is_found_in_the_right_batch_of_the_right_query(
    sink: Written, fault: Callable[[Written], None], by_name: str, by_sum: str, query_index: int
) -> None:
    verdict = adopted(sink, fault, query_index)
    assert verdict.verdict == VIOLATED
    query = ("q", "q2")[query_index]
    assert [(f.kind, f.query, f.batch) for f in verdict.findings] == [(by_name if sink.audit else by_sum, query, 1)]
    assert f"of query {query}" in verdict.findings[0].what


def test_records_between_the_queries_are_missed_and_those_read_twice_too(sink: Written) -> None:
    sink.batch(rows(20))
    sink.take_over("q2")
    sink.batch(rows(10), source=(15, 25))
    sink.take_over("q3")
    sink.batch(rows(10), source=(30, 40))
    verdict = sink.verdict(depth="ledger")
    assert [(f.kind, f.query, f.batch, f.records) for f in verdict.findings] == [
        ("source_overlap", "q2", 0, 5),
        ("source_gap", "q3", 0, 5),
    ]


def test_what_compaction_took_from_the_query_before_is_forgotten_and_not_torn(sink: Written) -> None:
    """The second query writes the same keys. One lane has been compacted so far, the other has not."""
    for number in range(4):
        sink.batch(rows(20, 20 * number))
    sink.take_over("q2")
    sink.batch(rows(20), forget=[b"0/0", b"0/1"])
    sink.batch(rows(20, 20))
    verdict = sink.verdict()
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, {"ledger_history"}), verdict.findings
    assert (verdict.findings[0].query, verdict.findings[0].batch) == ("q", 2)
    assert verdict.sink_committed == 80, "what the ledger remembers is verified"
    assert sink.verdict(batches=BatchRange(after=1, query="q")).verdict == CLEAN
    assert sink.verdict(batches=BatchRange(after=-1)).verdict == CLEAN
    # Of a batch that the second query has not come to, nothing was replaced.
    sink.batch(rows(20, 40), forget=[b"0/3"])
    assert "torn_batch" in kinds(sink.verdict())


def test_a_query_of_which_nothing_is_left_is_no_violation(sink: Written) -> None:
    sink.batch(rows(20))
    sink.batch(rows(20, 20))
    sink.take_over("q2")
    sink.batch(rows(10))
    sink.take_over("q3")
    sink.batch(rows(10), forget=[b"0/0", b"1/0"])
    verdict = sink.verdict()
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, {"ledger_history"}), verdict.findings
    assert (verdict.findings[0].query, verdict.findings[0].batch) == ("q3", 0)
    sink.batch(rows(10, 10))
    assert sink.verdict(batches=BatchRange(after=0)).verdict == CLEAN


def checkpoint(folder: Path, query: str, committed: int, adopted: dict[str, Any] | None = None) -> FsspecFiles:
    files = FsspecFiles(str(folder))
    files.write("metadata", json.dumps({"id": query}))
    for number in range(committed + 1):
        files.write(f"offsets/{number}", "v1")
        files.write(f"commits/{number}", "v1")
    if adopted is not None:
        files.write(record_files.ADOPTION, json.dumps({"format": 1, **adopted}))
    return files


def test_a_query_that_took_nothing_over_is_foreign(sink: Written, tmp_path: Path) -> None:
    sink.format = 1  # which does not say what was taken over
    sink.batch(rows(20))
    took = {"query_id": "q", "batch": 0}

    def found(files: FsspecFiles | None) -> set[str]:
        subject = Subject("s", sink.kafka, sink.sink, sink.sink, files=files)
        return kinds(verify(subject)) - {"other_input"}

    assert found(checkpoint(tmp_path / "before its first batch", "q2", -1, took)) == set()
    assert found(checkpoint(tmp_path / "other", "q2", -1)) == {"foreign_ledger"}
    sink.take_over("q2")
    sink.batch(rows(20))
    assert found(checkpoint(tmp_path / "adopted", "q2", 0, took)) == set()
    assert found(checkpoint(tmp_path / "foreign", "q2", 0)) == {"foreign_ledger"}
    assert found(checkpoint(tmp_path / "former", "q", 0)) == {"foreign_ledger"}
    assert found(None) == set(), "source offsets that touch are all that can be asked for"
    sink.query, sink.next_batch = "q", 1
    sink.batch(rows(20))
    assert "foreign_ledger" in found(None), "two that write in turns"
