"""A verification of a stream that goes on meanwhile: what is written between two looks is neither lost nor surplus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.verify.subject import SubjectReader
from airflow_ckpt.verify.verdict import CLEAN, VIOLATED
from ckpt_stream.kafka import topics
from ckpt_stream.protocol.verification.consistent_cut import ALL_BATCHES, BatchRange
from tests.airflow_ckpt.verify.sink_in_memory import DEAD, LEDGER, SinkInMemory, kinds
from tests.ckpt_stream.moving import QUERY
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the marker of a commit."""
    monkeypatch.setattr(topics, "MARKER_SECONDS", 0)


def once_before(
    monkeypatch: pytest.MonkeyPatch, look: str, happens: Callable[[], object], *, about: str | None = None
) -> None:
    """Something happens before a look of this name, but only the first time."""
    original, left = getattr(SubjectReader, look), [happens]

    def looks(self: SubjectReader, *args: Any) -> Any:
        if left and (about is None or args == (about,)):
            left.pop()()
        return original(self, *args)

    monkeypatch.setattr(SubjectReader, look, looks)


def two_batches(broker: FakeBroker, folder: Path, *, dead_letters: bool = False) -> SinkInMemory:
    sink = SinkInMemory(broker, folder, dead_letters=dead_letters)
    sink.batch()
    sink.batch()
    return sink


def test_a_batch_that_is_committed_between_the_looks_at_ledger_and_sink_is_no_surplus(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = two_batches(broker, tmp_path)
    once_before(monkeypatch, "read_sink_ends", sink.batch)
    verdict = sink.verdict()
    assert (verdict.verdict, verdict.last_batch) == (CLEAN, 2), verdict.findings


def test_a_batch_that_is_committed_while_the_dead_letters_are_looked_at_is_no_surplus(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is answered before its marker is in the ledger: where it began bounds the batch before it."""
    sink = two_batches(broker, tmp_path, dead_letters=True)
    ledger = broker.partition(LEDGER)

    def commit() -> None:
        hidden_from = ledger.high
        sink.batch()
        ledger.hidden_from = hidden_from
        once_before(monkeypatch, "wait_for_ledger", lambda: setattr(ledger, "hidden_from", None))

    once_before(monkeypatch, "ends", commit, about=DEAD)
    verdict = sink.verdict()
    assert (verdict.verdict, verdict.last_batch, verdict.dead_letters) == (CLEAN, 1, 2), verdict.findings


def test_a_ledger_is_not_behind_a_checkpoint_that_went_on_during_the_wait_for_it(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = two_batches(broker, tmp_path)
    once_before(monkeypatch, "wait_for_ledger", lambda: sink.keep_checkpoint(3))
    assert sink.verdict(depth="ledger").verdict == CLEAN
    assert kinds(sink.verdict(depth="ledger")) == [("ledger_behind", True)], "the batch never comes"


def test_a_ledger_that_a_broker_does_not_know_for_a_moment_is_waited_for(broker: FakeBroker, tmp_path: Path) -> None:
    """Otherwise a commit whose marker is late would look like a batch that is missing."""
    sink = two_batches(broker, tmp_path)
    sink.batch()
    sink.keep_checkpoint(3)
    broker.partition(LEDGER).hidden_from = broker.partition(LEDGER).high - 1
    broker.fail("describe_topics", kafka_error("UNKNOWN_TOPIC_OR_PART"))
    found = kinds(sink.verdict(depth="ledger"))
    assert ("ledger_behind", False) in found
    assert ("ledger_behind", True) not in found


def test_the_first_batch_of_a_range_is_compared_with_the_one_before(broker: FakeBroker, tmp_path: Path) -> None:
    """Else a batch that is missing between two verifications would never be noticed."""
    sink = SinkInMemory(broker, tmp_path)
    sink.batch()
    sink.batch(number=2)
    sink.keep_checkpoint(3)
    verdict = sink.verdict(depth="ledger", batches=BatchRange(after=0))
    assert (verdict.verdict, kinds(verdict)) == (VIOLATED, [("ledger_gap", True)])


@pytest.mark.parametrize(
    ("wanted", "query"),
    [(ALL_BATCHES, None), (BatchRange(after=0), QUERY), (BatchRange(after=5, query="before"), "before")],
)
def test_a_verdict_says_in_which_query_its_range_begins(
    broker: FakeBroker, tmp_path: Path, wanted: BatchRange, query: str | None
) -> None:
    """Where the next verification goes on depends on it: batch 5 of one query is not that of another one."""
    sink = two_batches(broker, tmp_path)
    assert sink.verdict(depth="ledger", batches=wanted).since_query == query
