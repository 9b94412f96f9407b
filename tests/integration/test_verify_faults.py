"""Seeded faults on a real broker, each made for real: every one is a violation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_ckpt.verify.verdict import VIOLATED
from airflow_ckpt.verify.verification import verify
from tests.support.written_sink import Written, kinds, rows

pytestmark = pytest.mark.integration


def test_a_record_removed_is_found(kafka: Any, two_batches: Written) -> None:
    """The batch claims a record that is not there."""
    two_batches.batch(rows(9, 100), claim=rows(10, 100))
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"lost"}
    assert verdict.lost == 1
    assert [f.batch for f in verdict.findings] == [2]


def test_a_record_written_twice_by_a_plain_producer_is_found(two_batches: Written) -> None:
    two_batches.plain("k1", "v1")
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == ({"alien"} if two_batches.audit else {"surplus"})
    assert verdict.alien == (1 if two_batches.audit else None)


def test_a_batch_replayed_without_the_ledger_check_is_found(two_batches: Written) -> None:
    two_batches.batch(rows(50, 50), number=1)
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert "ledger_repeat" in kinds(verdict)
    if two_batches.audit:
        assert verdict.duplicated == 50


def test_a_batch_replayed_without_its_ledger_record_is_found(two_batches: Written) -> None:
    two_batches.batch(rows(50, 50), number=1, with_ledger=False)
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == ({"duplicate"} if two_batches.audit else {"surplus"})
    if two_batches.audit:
        assert verdict.duplicated == 50


def test_a_batch_half_committed_is_found(written: Callable[..., Written]) -> None:
    sink = written(lanes=2)
    sink.batch(rows(40))
    sink.batch(rows(40, 40), skip_lanes=(1,))
    sink.batch(rows(10, 80))
    verdict = sink.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"torn_batch"}
    assert (verdict.torn, verdict.lost) == (1, 20)


def test_two_records_of_one_key_swapped_are_found_where_records_have_names(
    kafka: Any, written: Callable[..., Written]
) -> None:
    sink = written(partitions=1)
    sink.batch([("k", "a"), ("k", "b"), ("k", "c")], places=[0, 2, 1])
    verdict = sink.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"out_of_order"}
    assert verdict.out_of_order == 1


def test_a_record_altered_is_found(two_batches: Written) -> None:
    two_batches.batch([*rows(9, 100), ("k", "altered")], claim=rows(10, 100))
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"altered"}
    assert [f.batch for f in verdict.findings] == [2]


def test_a_ledger_record_missing_is_found(two_batches: Written) -> None:
    two_batches.next_batch = 3
    two_batches.batch(rows(5, 100))
    verdict = two_batches.verdict(depth="ledger")
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == {"ledger_gap"}


def test_source_ranges_that_overlap_or_leave_a_hole_are_found(written: Callable[..., Written]) -> None:
    sink = written()
    sink.batch(rows(10))
    sink.batch(rows(10, 10), source=(8, 18))
    sink.batch(rows(10, 20), source=(20, 30))
    verdict = sink.verdict(depth="ledger")
    assert verdict.verdict == VIOLATED
    assert [(f.kind, f.batch, f.records) for f in verdict.findings] == [("source_overlap", 1, 2), ("source_gap", 2, 2)]


def test_a_foreign_writer_with_transactions_is_found(two_batches: Written) -> None:
    foreign = Producer({**two_batches.kafka, "transactional.id": "foreign"})
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(two_batches.sink, "other", "k")
    foreign.commit_transaction()
    verdict = two_batches.verdict()
    assert verdict.verdict == VIOLATED
    assert kinds(verdict) == ({"alien"} if two_batches.audit else {"surplus"})


def test_a_transaction_open_for_longer_than_its_timeout_is_found(written: Callable[..., Written]) -> None:
    sink = written(partitions=1)
    sink.batch(rows(10))
    foreign = Producer({**sink.kafka, "transactional.id": f"{sink.sink}-stuck", "transaction.timeout.ms": 60000})
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(sink.sink, "never ended", "k")
    foreign.flush()
    time.sleep(1.2)
    verdict = verify(replace(sink.subject, transaction_timeout=1.0))
    assert "open_transaction" in kinds(verdict)
    finding = next(f for f in verdict.findings if f.kind == "open_transaction")
    assert (finding.partition, finding.topic) == (0, sink.sink)
    assert "kafka-transactions.sh" in finding.helps
    foreign.abort_transaction()
