"""Clean streams on a real broker: resting, with a batch in flight, and running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN, Verdict
from airflow_ckpt.verify.verification import verify
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from tests.support.written_sink import Written, rows

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("audit", [True, False])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_clean_stream_is_clean(written: Callable[..., Written], audit: bool, lanes: int) -> None:
    sink = written(audit=audit, lanes=lanes)
    sink.batch(rows(40))
    sink.batch([])  # an empty batch
    sink.batch(rows(40, 40), commit=False).abort_transaction()
    sink.batch([(None, "x"), ("k", None), (None, None), ("", "")])
    verdict = sink.verdict(count_aborted=True)
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.sink_committed, verdict.ledger_records) == (44, 44)
    assert (verdict.lost, verdict.duplicated, verdict.alien, verdict.torn) == (0, 0, 0, 0)
    assert verdict.aborted_hidden == 40
    assert (verdict.first_batch, verdict.last_batch) == (0, 2)
    assert verdict.verified_until == {"batch": 2, "query_id": "q"}


def test_an_incremental_verification_reads_only_what_is_new(written: Callable[..., Written]) -> None:
    sink = written()
    sink.batch(rows(50))
    sink.batch(rows(20, 50))
    verdict = sink.verdict(batches=BatchRange(after=0))
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.sink_committed == 20
    assert sink.verdict(batches=BatchRange(after=1)).sink_committed == 0
    assert sink.verdict(batches=BatchRange(until=0)).sink_committed == 50


def test_a_batch_in_flight_is_left_out_and_is_no_violation(written: Callable[..., Written]) -> None:
    sink = written(partitions=1)
    sink.batch(rows(30))
    sink.batch(rows(10, 30))
    open_one = sink.batch(rows(10, 40), commit=False)
    verdict = sink.verdict()
    assert verdict.verdict == CLEAN, verdict.findings
    assert verdict.last_batch == 0, "the newest batch has no bound while another one is open"
    open_one.commit_transaction()


def test_a_real_stream_is_clean_while_it_runs_and_afterwards(spark: Any, stream: Callable[..., Any]) -> None:
    under_test = stream(partitions=3, lanes=2, max_offsets_per_batch=40, audit="record")
    under_test.feed(*map(str, range(400)), keys=31)

    def subject() -> Subject:
        files = FsspecFiles(str(under_test.checkpoint))
        return Subject(under_test.name, under_test.kafka, under_test.name, under_test.sink, under_test.name, files)

    verdicts: list[Verdict] = []

    def verify_while_it_runs(events: Any) -> Any:
        return events.select("key", "value")

    for verdict in _while(lambda: under_test.drive(spark, verify_while_it_runs), subject):
        verdicts.append(verdict)
    verdicts.append(verify(subject()))
    assert [v.verdict for v in verdicts if v.last_batch is not None] == [CLEAN] * len(
        [v for v in verdicts if v.last_batch is not None]
    ), [v.findings for v in verdicts]
    assert len(verdicts) > 1, "the stream was not verified while it ran"
    assert verdicts[-1].sink_committed == 400
    assert verdicts[-1].source_records == 400


def _while(work: Callable[[], Any], subject: Callable[[], Subject]) -> Iterator[Verdict]:

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        verdict = verify(subject())
        if verdict.first_batch is not None:
            yield verdict
    thread.join()
