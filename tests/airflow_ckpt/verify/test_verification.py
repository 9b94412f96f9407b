"""A whole verification of a sink in memory: each check has its part in the verdict, and what is unknown is never clean."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from airflow_ckpt.exceptions import ScanStuck
from airflow_ckpt.verify.planning import make_plan
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN, VIOLATED
from airflow_ckpt.verify.verification import scan_in_process
from ckpt_stream.kafka import topics
from ckpt_stream.protocol.run_files.adoption import Adoption, note_adoption
from ckpt_stream.protocol.run_files.record_files import REPLAYS, list_to_json
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from tests.airflow_ckpt.verify.sink_in_memory import DEAD, LEDGER, SINK, SinkInMemory, kinds
from tests.ckpt_stream.moving import QUERY
from tests.support.fake_kafka import FakeBroker, FakePartition
from tests.support.fake_kafka.consumer import FakeConsumer

pytestmark = pytest.mark.unit

UNTIL = {"batch": 1, "query_id": QUERY}


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the marker of a commit."""
    monkeypatch.setattr(topics, "MARKER_SECONDS", 0)


@pytest.fixture
def sink(broker: FakeBroker, tmp_path: Path) -> SinkInMemory:
    """Two batches of three records."""
    return with_batches(SinkInMemory(broker, tmp_path))


def with_batches(sink: SinkInMemory) -> SinkInMemory:
    sink.batch()
    sink.batch()
    return sink


@pytest.mark.parametrize("audit", [False, True])
def test_a_sink_that_holds_what_its_ledger_says_is_clean(broker: FakeBroker, tmp_path: Path, audit: bool) -> None:
    verdict = with_batches(SinkInMemory(broker, tmp_path, audit=audit, dead_letters=True)).verdict()
    assert (verdict.verdict, kinds(verdict)) == (CLEAN, [])
    assert (verdict.sink_committed, verdict.dead_letters, verdict.lost, verdict.audited) == (6, 2, 0, audit)
    assert verdict.verified_until == UNTIL


def open_transaction(partition: FakePartition) -> None:
    """One that is much older than a transaction may be."""
    partition.hidden_from = partition.high
    partition.write(b"k", b"open", time.time() - 1000)


@pytest.mark.parametrize("topic", [SINK, LEDGER])
@pytest.mark.parametrize("depth", ["ledger", "sink"])
def test_a_transaction_that_holds_readers_back_is_a_violation(sink: SinkInMemory, topic: str, depth: str) -> None:
    open_transaction(sink.broker.partition(topic))
    verdict = sink.verdict(depth=depth, batches=BatchRange(until=0))
    assert [(f.kind, f.topic) for f in verdict.findings] == [("open_transaction", topic)]
    assert (verdict.verdict, verdict.open_transactions) == (VIOLATED, 1)


def test_a_replay_that_a_user_accepted_keeps_the_verdict_from_being_clean(sink: SinkInMemory) -> None:
    accepted = {"query_id": QUERY, "batch": 0, "lanes": [0], "run": "r", "time": "t", "accepted": True}
    sink.files.write(REPLAYS, list_to_json([accepted]))
    verdict = sink.verdict()
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, [("replay_accepted", False)])
    later = sink.verdict(batches=BatchRange(after=0))
    assert (later.verdict, later.findings) == (CLEAN, []), "the batch is not in this range"


def test_what_retention_has_deleted_is_unknown_and_not_lost(sink: SinkInMemory) -> None:
    sink.sink.low = 1
    verdict = sink.verdict()
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, [("sink_truncated", False)])
    assert (verdict.lost, verdict.verified_until) == (None, None), "0 would say that none is lost"
    assert (verdict.sink_committed, verdict.reached) == (3, UNTIL), "the rest is read"


def test_what_is_missing_of_the_rest_is_lost_all_the_same(sink: SinkInMemory) -> None:
    sink.sink.low = 1
    sink.sink.log[4] = None
    verdict = sink.verdict()
    assert kinds(verdict) == [("sink_truncated", False), ("lost", True)]
    assert (verdict.verdict, verdict.lost) == (VIOLATED, 1)


def test_a_compacted_sink_is_not_read_and_not_clean(sink: SinkInMemory) -> None:
    sink.broker.topics[SINK].settings["cleanup.policy"] = "compact,delete"
    verdict = sink.verdict()
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, [("sink_compacted", False)])
    assert verdict.sink_committed is None


@pytest.mark.parametrize("topic", [SINK, LEDGER])
@pytest.mark.parametrize("depth", ["ledger", "sink"])
def test_a_topic_that_is_not_there_is_unknown(sink: SinkInMemory, topic: str, depth: str) -> None:
    del sink.broker.topics[topic]
    verdict = sink.verdict(depth=depth)
    assert (verdict.verdict, kinds(verdict)) == (UNKNOWN, [("no_topic", False)])
    assert verdict.verified_until is None


@pytest.fixture
def divided(broker: FakeBroker, tmp_path: Path) -> SinkInMemory:
    """A sink with a dead-letter topic."""
    return with_batches(SinkInMemory(broker, tmp_path, dead_letters=True))


def lose(sink: SinkInMemory) -> None:
    sink.dead.log[1] = None


def add_partition(sink: SinkInMemory) -> None:
    sink.broker.topics[DEAD].partitions.append(FakePartition())
    sink.write(sink.broker.partition(DEAD, 1), "x")


def truncate(sink: SinkInMemory) -> None:
    sink.dead.low = 1


def delete_topic(sink: SinkInMemory) -> None:
    del sink.broker.topics[DEAD]


@pytest.mark.parametrize(
    ("happens", "kind", "verdict"),
    [
        (lose, "dead_letter_lost", VIOLATED),
        (add_partition, "dead_letter_partition", UNKNOWN),
        (truncate, "sink_truncated", UNKNOWN),
        (delete_topic, "no_topic", UNKNOWN),
    ],
)
def test_the_dead_letters_are_verified_too(divided: SinkInMemory, happens: Any, kind: str, verdict: str) -> None:
    happens(divided)
    found = divided.verdict()
    assert kinds(found) == [(kind, verdict == VIOLATED)]
    assert (found.verdict, found.lost) == (verdict, 0), "the sink itself is whole"
    assert divided.verdict(dead_letters=False).verdict == CLEAN


def test_a_partition_of_the_dead_letter_topic_that_is_new_and_empty_is_no_finding(divided: SinkInMemory) -> None:
    divided.broker.topics[DEAD].partitions.append(FakePartition())
    assert divided.verdict().verdict == CLEAN


def test_a_dead_letter_topic_that_the_stream_has_now_says_nothing_of_batches_before(sink: SinkInMemory) -> None:
    sink.dead_letters = True
    sink.broker.topic(DEAD)
    sink.batch(dead=("x", "y"))
    verdict = sink.verdict()
    assert (verdict.verdict, verdict.dead_letters) == (CLEAN, 2), verdict.findings


def test_of_an_audited_sink_every_record_is_looked_at(broker: FakeBroker, tmp_path: Path) -> None:
    """The record has the right key and value, so the sums agree; only its name shows that it is another one's copy."""
    sink = with_batches(SinkInMemory(broker, tmp_path, audit=True))
    entry = sink.sink.log[1]
    assert entry is not None
    entry.headers = ((entry.headers[0][0], b"0/0/0"),)
    verdict = sink.verdict()
    assert [f.kind for f in verdict.findings] == ["duplicate", "lost"]
    assert (verdict.verdict, verdict.lost, verdict.duplicated) == (VIOLATED, 1, 1)


@pytest.mark.parametrize(("missing", "kind", "torn"), [(slice(3, 6), "torn_batch", 1), (slice(3, 5), "lost", 0)])
def test_of_an_audited_sink_a_lane_without_any_record_is_torn(
    broker: FakeBroker, tmp_path: Path, missing: slice, kind: str, torn: int
) -> None:
    sink = with_batches(SinkInMemory(broker, tmp_path, audit=True))
    places = range(6)[missing]
    for place in places:
        sink.sink.log[place] = None
    verdict = sink.verdict()
    assert kinds(verdict) == [(kind, True)]
    assert (verdict.verdict, verdict.lost, verdict.torn) == (VIOLATED, len(places), torn)


def test_one_batch_without_the_audit_header_is_enough_to_go_by_the_sums(broker: FakeBroker, tmp_path: Path) -> None:
    sink = SinkInMemory(broker, tmp_path)
    sink.batch()
    sink.audit = True
    sink.batch()
    verdict = sink.verdict()
    assert (verdict.verdict, verdict.audited, verdict.findings) == (CLEAN, False, [])


def test_aborted_copies_are_counted_if_that_is_wanted(broker: FakeBroker, tmp_path: Path) -> None:
    sink = SinkInMemory(broker, tmp_path)
    sink.batch()
    sink.write(sink.sink, "a", aborted=True)
    sink.batch()
    assert [sink.verdict(count_aborted=wanted).aborted_hidden for wanted in (True, False)] == [1, None]
    assert sink.verdict(count_aborted=True).verdict == CLEAN


ADOPTING = "query-that-took-over"


def taken_over(sink: SinkInMemory, *, batches: int) -> None:
    """A new checkpoint takes over the ledger, and has written so many batches of its own, of the first ledger format."""
    sink.files.write("metadata", f'{{"id": "{ADOPTING}"}}')
    for name in ("offsets/0", "commits/0", "offsets/1", "commits/1"):
        sink.files.remove(name)
    for number in range(batches):
        start, end = ({"source": {"0": 20 + 10 * (number + n)}} for n in range(2))
        sink.batch(number=number, query_id=ADOPTING, start=start, end=end, format=1)
    sink.files.write("metadata", f'{{"id": "{ADOPTING}"}}')
    for n in range(batches, 3):
        sink.files.remove(f"offsets/{n}")
        sink.files.remove(f"commits/{n}")


@pytest.mark.parametrize("batches", [0, 1])
@pytest.mark.parametrize(("noted", "kind"), [(True, None), (False, ("foreign_ledger", True))])
def test_a_ledger_that_was_taken_over_is_not_foreign(
    sink: SinkInMemory, batches: int, noted: bool, kind: tuple[str, bool] | None
) -> None:
    """In the first ledger format only a note beside the checkpoint says so."""
    taken_over(sink, batches=batches)
    if noted:
        note_adoption(sink.files, Adoption(QUERY, 1))
    assert kinds(sink.verdict(depth="ledger")) == ([kind] if kind else [])


def test_a_scan_that_gets_nothing_for_a_minute_is_stuck(sink: SinkInMemory) -> None:
    """As when a broker is up and does not answer: neither clean nor lost, and not a wait without an end."""
    looks = 0

    def progress(done: int, total: int) -> None:
        nonlocal looks
        looks += 1
        assert looks < 1_000, "it waits without an end"

    plan, broker = make_plan(sink.subject), sink.broker
    before = len(broker.clients)

    def stick() -> None:
        for consumer in broker.clients[before:]:
            consumer.stuck_at = 4

    broker.fail("poll", stick)
    with pytest.raises(ScanStuck):
        list(scan_in_process(plan, sink.subject.kafka, progress))
    assert broker.clock is not None
    assert broker.clock.now >= 60


def test_a_scan_that_is_slow_is_not_stuck(sink: SinkInMemory) -> None:
    """Each answer of the broker takes most of the minute after which silence counts as stuck."""
    plan, broker = make_plan(sink.subject), sink.broker

    def wait() -> None:
        assert broker.clock is not None
        broker.clock.now += 50

    broker.fail("poll", *[wait] * 6)
    (found,) = scan_in_process(plan, sink.subject.kafka)
    assert found.records == 6


def test_a_partition_of_which_nothing_is_to_be_read_is_not_waited_for(
    sink: SinkInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has read nothing has no position, by which the end of a scan is known."""
    assigned: list[list[int]] = []
    assign = FakeConsumer.assign

    def note(self: FakeConsumer, partitions: list[TopicPartition]) -> None:
        assigned.append([p.partition for p in partitions])
        assign(self, partitions)

    sink.broker.topics[SINK].partitions.append(FakePartition())
    plan = make_plan(sink.subject)
    monkeypatch.setattr(FakeConsumer, "assign", note)
    (found,) = scan_in_process(plan, sink.subject.kafka)
    assert (found.records, assigned) == (6, [[0]])
