"""What cannot be verified is unknown, never clean: retention, compaction, a short ledger, an open transaction."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.subject import Subject, SubjectReader
from airflow_ckpt.verify.verdict import UNKNOWN, VIOLATED
from airflow_ckpt.verify.verification import verify
from ckpt_stream.kafka import topics
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from tests.support.written_sink import Written, kinds, rows

pytestmark = pytest.mark.integration


def checkpoint_in(folder: Path, newest: int) -> FsspecFiles:
    """A checkpoint that has committed these batches, as `Written` writes them."""
    texts = {"metadata": '{"id":"q"}'}
    for n in range(newest + 1):
        texts[f"offsets/{n}"] = f'v1\n{{"batchTimestampMs":{n}}}\n{{"in":{{"0":{n}}}}}'
        texts[f"commits/{n}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return FsspecFiles(str(folder))


def test_a_sink_truncated_by_retention_is_not_called_clean(two_batches: Written) -> None:
    admin = AdminClient(dict(two_batches.kafka))
    ends = two_batches.ends()[two_batches.sink]
    for future in admin.delete_records(
        [TopicPartition(two_batches.sink, int(p), o // 2) for p, o in ends.items()]
    ).values():
        future.result(30)
    verdict = two_batches.verdict()
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"sink_truncated"}
    assert verdict.lost is None


def test_what_retention_has_left_is_verified(written: Callable[..., Written]) -> None:
    sink = written()
    for _ in range(3):
        sink.batch(rows(30))
    begin = sink.ends()[sink.sink]
    sink.batch(rows(30))
    begin_of_last = sink.ends()[sink.sink]
    sink.batch(rows(30))
    admin = AdminClient(dict(sink.kafka))
    # All of batches 0 to 2, and a part of batch 3.
    for future in admin.delete_records(
        [TopicPartition(sink.sink, int(p), o + 1 if begin_of_last[p] > o + 1 else o) for p, o in begin.items()]
    ).values():
        future.result(30)
    verdict = sink.verdict()
    (finding,) = verdict.findings
    assert (finding.kind, verdict.verdict) == ("sink_truncated", UNKNOWN)
    assert re.search(r"\b0 to 3\b", finding.what)
    assert re.search(r"\bbatch 4\b", finding.helps)
    assert (verdict.sink_committed, verdict.lost, verdict.reached) == (30, None, {"batch": 4, "query_id": "q"})

    sink.plain("k1", "of another producer")
    assert sink.verdict().verdict == VIOLATED


@pytest.mark.parametrize("after", [0, 7])
def test_a_range_that_the_ledger_does_not_hold_is_not_called_clean(written: Callable[..., Written], after: int) -> None:
    sink = written()
    assert kinds(sink.verdict(batches=BatchRange(after=after))) == {"no_batches"}
    sink.batch(rows(10))
    verdict = sink.verdict(batches=BatchRange(after=after))
    assert kinds(verdict) == (set() if after == 0 else {"not_there_yet"})
    assert verdict.since == after + 1


def test_a_compacted_sink_is_not_called_clean(written: Callable[..., Written]) -> None:
    sink = written(cleanup_policy="compact")
    sink.batch(rows(10))
    verdict = sink.verdict()
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"sink_compacted"}


def test_a_commit_whose_marker_is_late_is_unknown_until_it_is_there(
    written: Callable[..., Written], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MARKER_SECONDS", 0.3)
    monkeypatch.setattr(SubjectReader, "read_group", lambda reader: {"in": {"0": 60}})
    sink = written()
    for first in (0, 20):
        sink.batch(rows(20, first))
    # Checkpoint and group know of batch 2, whose transaction readers do not see the end of.
    late = sink.batch(rows(20, 40), number=2, source=(40, 60), commit=False)
    subject = replace(sink.subject, files=checkpoint_in(tmp_path, 2))
    verdict = verify(subject, depth="ledger")
    found = {f.kind: f.violation for f in verdict.findings}
    assert (found["ledger_behind"], found["group_ahead"]) == (False, False), verdict.findings
    assert verdict.verdict == UNKNOWN
    late.commit_transaction()
    assert {"ledger_behind", "group_ahead"}.isdisjoint(kinds(verify(subject, depth="ledger")))
    # The same lack, with nothing open that could hide the record.
    behind = replace(subject, files=checkpoint_in(tmp_path, 3))
    assert {f.kind for f in verify(behind, depth="ledger").findings if f.violation} >= {"ledger_behind"}


def test_a_ledger_shorter_than_the_range_is_not_called_clean(written: Callable[..., Written]) -> None:
    sink = written()
    sink.next_batch = 5
    sink.batch(rows(10))
    verdict = sink.verdict()
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"ledger_history"}
    assert verdict.verified_until is None


def test_a_stream_that_never_ran_is_not_called_clean(kafka: Any, topics: Callable[..., str]) -> None:
    sink = topics("sink")
    verdict = verify(Subject("s", kafka.client_config(), sink, sink))
    assert verdict.verdict == UNKNOWN
    assert kinds(verdict) == {"no_topic"}
