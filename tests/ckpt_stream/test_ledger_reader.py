"""Reading a lane: patient with a long one and with a slow receiver, not with a Kafka that says nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ckpt_stream import ledger_reader
from ckpt_stream.errors import LedgerUndecided, SinkError
from ckpt_stream.ledger import LedgerRecord, record_key
from ckpt_stream.ledger_reader import LaneLog, read_lane, read_last
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

SECONDS = 30.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Message:
    """As confluent-kafka gives it."""

    at: int
    name: bytes
    content: bytes | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self.name

    def value(self) -> bytes | None:
        return self.content

    def error(self) -> None:
        return None


class EndOfPartition(Message):
    def error(self) -> Any:
        from confluent_kafka import KafkaError

        return KafkaError(KafkaError._PARTITION_EOF)


class Lane:
    """One partition: a message or a hole per offset. Each poll takes its time."""

    def __init__(self, clock: Clock, poll_seconds: float = 0.0) -> None:
        self.clock, self.poll_seconds = clock, poll_seconds
        self.log: list[tuple[bytes, bytes | None] | None] = []
        self.at: int | None = None
        #: Offsets behind which nothing is delivered.
        self.stuck_at: int | None = None
        self.delivered = 0
        #: Where a transaction begins that has not ended.
        self.hidden_from: int | None = None
        self.answered = False

    @property
    def stable(self) -> int:
        return len(self.log) if self.hidden_from is None else self.hidden_from

    def write(self, record: LedgerRecord) -> None:
        """A record and its marker."""
        self.log += [(record.key, record.to_json()), None]

    def tombstone(self, batch: int) -> None:
        self.log += [(record_key(0, batch), None), None]

    def list_topics(self, *_: Any, **__: Any) -> None:
        """Answers."""

    def get_watermark_offsets(self, *_: Any, cached: bool, **__: Any) -> tuple[int, int]:
        """The last stable offset when asked; otherwise the high watermark, which an answer with records brings along."""
        if cached:
            return (0, len(self.log)) if self.answered else (-1001, -1001)
        return 0, self.stable

    def assign(self, partitions: list[Any]) -> None:
        self.at = partitions[0].offset

    def unassign(self) -> None:
        self.at = None

    def position(self, partitions: list[Any]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition("s.ledger", 0, -1001 if self.at is None else self.at)]

    def poll(self, _timeout: float) -> Message | None:
        assert self.at is not None
        self.clock.now += self.poll_seconds
        if self.at == self.stuck_at:
            return None
        self.answered = True
        if self.at >= self.stable:
            return EndOfPartition(self.at, b"", None)
        found = self.log[self.at]
        self.at += 1
        if found is None:
            return None
        self.delivered += 1
        return Message(self.at - 1, *found)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ledger_reader, "time", made)
    return made


def a_lane(clock: Clock, batches: int, **options: float) -> Lane:
    lane = Lane(clock, **options)
    for batch in range(batches):
        lane.write(held(batch))
    return lane


def test_a_lane_is_read_for_as_long_as_it_moves(clock: Clock) -> None:
    lane = a_lane(clock, 100, poll_seconds=SECONDS * 0.9)
    assert [r.batch for r in read_lane(lane, "s.ledger", 0, SECONDS)] == list(range(100))
    assert clock.now > 100 * SECONDS * 0.9


def test_a_hole_that_is_passed_is_progress(clock: Clock) -> None:
    lane = Lane(clock, SECONDS * 0.9)
    lane.log = [None] * 50
    lane.write(held(7))
    assert [r.batch for r in read_lane(lane, "s.ledger", 0, SECONDS)] == [7]


def test_a_lane_that_does_not_move_is_given_up_with_the_place_where_it_stands(clock: Clock) -> None:
    lane = a_lane(clock, 10, poll_seconds=1.0)
    lane.stuck_at = 4
    with pytest.raises(SinkError, match=r"to offset 4 of 20, and no further for 30 s"):
        read_lane(lane, "s.ledger", 0, SECONDS)
    assert clock.now < 4 + 2 * SECONDS


def test_the_time_that_the_receiver_spends_does_not_count(clock: Clock) -> None:
    lane = a_lane(clock, 10, poll_seconds=0.1)
    seen = []
    for _, _, record in ledger_reader._read(lane, "s.ledger", 0, 0, 20, SECONDS):
        clock.now += 10 * SECONDS
        seen.append(record)
    assert len(seen) == 10


def test_a_tombstone_deletes_only_what_was_before_it(clock: Clock) -> None:
    lane = a_lane(clock, 3)
    lane.tombstone(0)
    lane.write(held(0, run_id="again"))
    lane.write(held(3))
    assert [(r.batch, r.run_id) for r in read_lane(lane, "s.ledger", 0)] == [
        (1, "run-1"),
        (2, "run-1"),
        (0, "again"),
        (3, "run-1"),
    ]


def test_a_batch_that_was_written_twice_is_there_twice(clock: Clock) -> None:
    lane = a_lane(clock, 2)
    lane.write(held(1))
    assert [r.batch for r in read_lane(lane, "s.ledger", 0)] == [0, 1, 1]


def test_a_second_look_reads_only_what_is_new_and_gives_all(clock: Clock) -> None:
    lane = a_lane(clock, 50)
    log = LaneLog("s.ledger", 0)
    assert len(log.read(lane)) == 50
    lane.write(held(50))
    lane.tombstone(0)
    lane.delivered = 0
    assert [r.batch for r in log.read(lane)] == list(range(1, 51))
    assert lane.delivered == 2
    assert log.read(lane) == read_lane(lane, "s.ledger", 0)


def test_records_are_read_as_they_were_written_although_they_share_what_repeats_itself(clock: Clock) -> None:
    lane = a_lane(clock, 3)
    found = read_lane(lane, "s.ledger", 0)
    assert found == [held(batch) for batch in range(3)]
    assert found[1].start is found[0].end
    assert found[2].query_id is found[0].query_id


@pytest.mark.parametrize("leftovers", [0, 5, 100])
def test_the_newest_record_is_found_behind_whatever_aborted_attempts_left(clock: Clock, leftovers: int) -> None:
    lane = a_lane(clock, 5)
    lane.log += [None] * leftovers
    assert read_last(lane, "s.ledger", 0) == held(4)


def test_a_lane_of_holes_alone_holds_no_record(clock: Clock) -> None:
    lane = Lane(clock)
    lane.log = [None] * 1000
    assert read_last(lane, "s.ledger", 0) is None
    assert read_lane(lane, "s.ledger", 0) == []


@pytest.mark.parametrize("batches", [0, 3])
def test_a_fenced_lane_that_hides_what_is_behind_a_foreign_transaction_is_not_decided_upon(
    clock: Clock, batches: int
) -> None:
    lane = a_lane(clock, batches)
    lane.hidden_from = len(lane.log)
    lane.write(held(batches))
    with pytest.raises(LedgerUndecided, match=f"up to {lane.hidden_from} of {len(lane.log)}") as undecided:
        read_last(lane, "s.ledger", 0)
    assert undecided.value.restart_may_help
    before = held(batches - 1) if batches else None
    assert read_last(lane, "s.ledger", 0, fenced=False) == before


def test_a_lane_that_was_never_written_to_is_empty_once_kafka_has_said_so(clock: Clock) -> None:
    lane = Lane(clock)
    assert read_last(lane, "s.ledger", 0) is None
    assert lane.answered
