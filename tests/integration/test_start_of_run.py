"""Ledger and checkpoint compared on a real broker: before the fence, behind it, and with transactions that are not over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from ckpt_stream.driver import start_of_run
from ckpt_stream.driver.start_of_run import Start, reconcile_at_start
from ckpt_stream.errors import Fenced, ForeignLedger, LedgerLost, LedgerUndecided
from ckpt_stream.kafka import topics
from ckpt_stream.kafka.lane_control import read_ledger_ends
from ckpt_stream.kafka.ledger_comparison import compare_ledger
from ckpt_stream.kafka.ledger_creation import ensure_ledger
from ckpt_stream.kafka.ledger_reader import open_reader, read_last
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.checkpoint.checkpoint_log import input_digest
from ckpt_stream.protocol.checkpoint.intact_checkpoint import read_intact_checkpoint
from ckpt_stream.protocol.ledger.batch_to_write import SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, ledger_topic, transactional_id
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from tests.ckpt_stream.moving import QUERY, MovingCheckpoint, offsets
from tests.ckpt_stream.samples import held
from tests.support.kafka_io import create_topic

pytestmark = pytest.mark.integration


class Files(MovingCheckpoint):
    """A checkpoint that stands still at a batch; `write` is for the note of an adoption."""

    def __init__(self, newest: int, *, in_doubt: bool = False) -> None:
        super().__init__([], begun=newest + 1)
        if in_doubt:
            del self.texts[f"commits/{newest}"]

    def write(self, name: str, text: str) -> None:
        self.texts[name] = text


class World:
    """A sink and its ledger, written by transactions of this test."""

    def __init__(self, kafka: dict[str, str], lanes: int = 1) -> None:
        self.kafka = kafka
        self.sink = create_topic(kafka, "sink")
        self.ledger = ledger_topic(self.sink)
        self.topics = Topics(kafka)
        found = self.topics.find(self.sink)
        assert found is not None
        self.identity = SinkIdentity(self.sink, lanes, self.sink, found.id)
        ensure_ledger(self.topics, self.ledger, lanes, found)
        self.topics.find(self.ledger)

    def record(self, batch: int, lane: int = 0, **changes: Any) -> LedgerRecord:
        values = {
            "sink_id": self.sink,
            "query_id": QUERY,
            "digest": input_digest(offsets(batch)),
            "topic": self.sink,
            "topic_id": self.identity.topic_id,
        }
        return held(batch, lane, **{"lanes": self.identity.lanes, **values, **changes})

    def write(self, record: LedgerRecord, *, by: str | None = None, commit: bool = True) -> Producer:
        """One lane of a batch in a transaction of its own, which may stay open."""
        name = by or transactional_id(self.sink, record.lane)
        producer = Producer({**self.kafka, "transactional.id": name, "transaction.timeout.ms": 60_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.ledger, record.to_json(), record.key, partition=record.lane)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        return producer

    def compare(self, files: Files) -> Reconciliation:
        return compare_ledger(files, self.topics, self.kafka, self.identity, adopt_ledger=False)

    def begin(self, files: Files, *, lanes: int | None = None) -> Start:
        identity = replace(self.identity, lanes=lanes or self.identity.lanes)
        options = {"run_id": "r", "application": "", "timeout_ms": 60_000, "adopt_ledger": False}
        return reconcile_at_start(files, self.topics, self.kafka, identity, **options)  # type: ignore[arg-type]

    def lasts(self) -> list[LedgerRecord | None]:
        found = self.topics.find(self.ledger)
        assert found is not None
        return read_ledger_ends(self.kafka, self.ledger, found.partitions)


@pytest.fixture
def world(kafka: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    monkeypatch.setattr(topics, "MARKER_SECONDS", 0.3)
    made: list[World] = []

    def make(lanes: int = 1, batches: int = 3) -> World:
        made.append(World(kafka.client_config(), lanes))
        for batch in range(batches):
            for lane in range(lanes):
                made[-1].write(made[-1].record(batch, lane))
        return made[-1]

    yield make
    for each in made:
        each.topics.close()


def test_a_record_that_readers_do_not_see_yet_is_undecided_and_not_lost(world: Callable[..., World]) -> None:
    under_test = world()
    late = under_test.write(under_test.record(3), commit=False)
    with pytest.raises(LedgerUndecided) as undecided:
        under_test.compare(Files(3))
    assert undecided.value.restart_may_help
    assert "batch 2" in str(undecided.value)
    late.commit_transaction(30)
    assert under_test.compare(Files(3)) == Reconciliation(Resume.CLEAN, 3)


def test_a_record_that_comes_while_it_is_looked_for_is_there(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = world()
    late = under_test.write(under_test.record(3), commit=False)
    settle = Topics.wait_until_readable

    def settle_meanwhile(self: Topics, name: str) -> bool:
        late.commit_transaction(30)
        return settle(self, name)

    monkeypatch.setattr(Topics, "wait_until_readable", settle_meanwhile)
    assert under_test.compare(Files(3)) == Reconciliation(Resume.CLEAN, 3)


def test_a_record_that_is_lost_is_refused_when_nothing_hides_it(world: Callable[..., World]) -> None:
    with pytest.raises(LedgerLost):
        world().compare(Files(3))


def test_the_fence_ends_a_commit_whose_marker_is_late_and_the_run_begins(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = world()
    late = under_test.write(under_test.record(3), commit=False)
    fence = start_of_run.fence_lanes

    def fence_as_the_coordinator_does(*given: Any) -> None:
        # It has promised the commit, and writes its markers before it answers the client that takes over.
        late.commit_transaction(30)
        fence(*given)

    monkeypatch.setattr(start_of_run, "fence_lanes", fence_as_the_coordinator_does)
    assert under_test.begin(Files(3)).reconciliation == Reconciliation(Resume.CLEAN, 3)


def test_a_record_that_the_fence_aborts_is_refused_as_lost(world: Callable[..., World]) -> None:
    under_test = world()
    under_test.write(under_test.record(3), commit=False)
    with pytest.raises(LedgerLost, match="batch 2"):
        under_test.begin(Files(3))


def test_an_open_transaction_of_the_batch_in_doubt_does_not_hinder_the_start(world: Callable[..., World]) -> None:
    under_test = world()
    under_test.write(under_test.record(3), commit=False)
    files = Files(3, in_doubt=True)
    assert under_test.compare(files) == Reconciliation(Resume.IN_DOUBT, 3, (0,))
    assert under_test.begin(files).reconciliation.to_finish == (0,)


def test_a_stream_of_another_query_is_refused_without_disturbing_the_one_that_writes(
    world: Callable[..., World],
) -> None:
    under_test = world()
    open_transaction = under_test.write(under_test.record(3), commit=False)
    other = Files(0)
    other.texts["metadata"] = '{"id": "another"}'
    for look in (under_test.compare, under_test.begin):
        with pytest.raises(ForeignLedger):
            look(other)
    open_transaction.commit_transaction(30)
    assert under_test.lasts() == [under_test.record(3)]


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_every_lane_is_anchored_where_the_batch_in_doubt_begins_and_holds_off_the_former_division(
    world: Callable[..., World], before: int, after: int
) -> None:
    under_test = world(before)
    start = under_test.begin(Files(3, in_doubt=True), lanes=after)
    assert start.reconciliation.to_finish == tuple(range(after))
    lasts = under_test.lasts()
    assert [(r.batch, r.lanes, r.kind, r.end) for r in lasts if r] == [
        (2, after, ANCHOR, under_test.record(2).end)
    ] * max(before, after)
    # Told once, it is not told again.
    assert under_test.begin(Files(3, in_doubt=True), lanes=after).reconciliation.anchors is None
    assert under_test.lasts() == lasts


def test_a_lane_that_was_written_before_its_anchor_ends_the_start_and_the_next_one_says_how_to_go_on(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = world(3)
    files = Files(3, in_doubt=True)
    write_anchors = start_of_run.write_anchors

    def after_an_old_attempt(*given: Any, **options: Any) -> None:
        under_test.write(under_test.record(3, 1))
        write_anchors(*given, **options)

    monkeypatch.setattr(start_of_run, "write_anchors", after_an_old_attempt)
    with pytest.raises(Fenced, match="Lane 1") as fenced:
        under_test.begin(files, lanes=2)
    assert fenced.value.restart_may_help
    monkeypatch.undo()
    assert [(r.batch, r.lanes) for r in under_test.lasts() if r] == [(2, 3), (3, 3), (2, 2)]
    start = under_test.begin(files, lanes=3)
    assert start.reconciliation.to_finish == (0, 2)
    assert [(r.batch, r.lanes) for r in under_test.lasts() if r] == [(2, 3), (3, 3), (2, 3)]
    assert read_intact_checkpoint(files).in_doubt == 3


def test_an_open_transaction_is_what_keeps_the_ledger_from_being_settled(world: Callable[..., World]) -> None:
    under_test = world()
    assert under_test.topics.wait_until_readable(under_test.ledger)
    stuck = under_test.write(under_test.record(9), by=f"{under_test.sink}-other", commit=False)
    assert not under_test.topics.wait_until_readable(under_test.ledger)
    stuck.abort_transaction(30)
    assert under_test.topics.wait_until_readable(under_test.ledger)


@pytest.mark.parametrize("batches", [0, 3])
def test_a_batch_behind_a_hanging_transaction_is_not_written_again(world: Callable[..., World], batches: int) -> None:
    under_test = world(batches=batches)
    stuck = under_test.write(under_test.record(9), by=f"{under_test.sink}-other", commit=False)
    under_test.write(under_test.record(batches))
    files = Files(batches, in_doubt=True)
    with pytest.raises(LedgerUndecided):
        under_test.begin(files)
    with open_reader(under_test.kafka) as reader, pytest.raises(LedgerUndecided):
        read_last(reader, under_test.ledger, 0)
    stuck.abort_transaction(30)
    assert under_test.begin(files).reconciliation.to_finish == ()
