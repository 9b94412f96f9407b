"""Reading a lane: however long it is and however slow the caller, but not from a Kafka that sends nothing more."""

from __future__ import annotations

import pytest

from ckpt_stream.errors import LedgerUndecided, SinkError
from ckpt_stream.kafka import ledger_reader
from ckpt_stream.kafka.ledger_reader import LaneReader, open_reader, read_lane, read_last
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, record_key
from tests.ckpt_stream.samples import held
from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka import FakeBroker, kafka_error
from tests.support.fake_kafka.consumer import FakeConsumer

pytestmark = pytest.mark.unit

SECONDS = 30.0
TOPIC = "s.ledger"


class Lane:
    """Lane 0 of a ledger, and a consumer of which each poll takes its time."""

    def __init__(self, broker: FakeBroker, clock: FakeClock, batches: int = 0, poll_seconds: float = 0.0) -> None:
        self.broker, self.clock = broker, clock
        self.partition = broker.topic(TOPIC).partitions[0]
        self.consumer: FakeConsumer = open_reader({})
        self.consumer.before_poll = lambda: clock.sleep(poll_seconds)
        for batch in range(batches):
            self.write(held(batch))

    def write(self, record: LedgerRecord) -> None:
        """A record and its marker."""
        self.partition.write(record.key, record.to_json())
        self.partition.mark()

    def tombstone(self, batch: int) -> None:
        self.partition.write(record_key(0, batch), None)
        self.partition.mark()

    def read(self) -> list[LedgerRecord]:
        return read_lane(self.consumer, TOPIC, 0, SECONDS)

    def last(self, *, fenced: bool = True) -> LedgerRecord | None:
        return read_last(self.consumer, TOPIC, 0, SECONDS, fenced=fenced)


def test_a_lane_is_read_for_as_long_as_there_is_progress(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 100, poll_seconds=SECONDS * 0.9)
    assert [r.batch for r in lane.read()] == list(range(100))
    assert clock.now > 100 * SECONDS * 0.9


def test_an_offset_without_a_record_is_progress(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, poll_seconds=SECONDS * 0.9)
    lane.partition.mark(50)
    lane.write(held(7))
    assert [r.batch for r in lane.read()] == [7]


def test_a_lane_without_progress_is_an_error_that_names_the_offset(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 10, poll_seconds=1.0)
    lane.consumer.stuck_at = 4
    with pytest.raises(SinkError, match=r"\b4 of 20\b"):
        lane.read()
    assert clock.now < 4 + 2 * SECONDS


def test_the_time_that_the_caller_spends_on_a_record_does_not_count(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 10, poll_seconds=0.1)
    seen = []
    for _, _, record in ledger_reader._read(lane.consumer, TOPIC, 0, 0, 20, SECONDS):
        clock.now += 10 * SECONDS
        seen.append(record)
    assert len(seen) == 10


def test_a_tombstone_deletes_only_what_was_before_it(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 3)
    lane.tombstone(0)
    lane.write(held(0, run_id="again"))
    lane.write(held(3))
    assert [(r.batch, r.run_id) for r in lane.read()] == [(1, "run-1"), (2, "run-1"), (0, "again"), (3, "run-1")]


def test_a_batch_that_was_written_twice_is_read_twice(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 2)
    lane.write(held(1))
    assert [r.batch for r in lane.read()] == [0, 1, 1]


def test_a_tombstone_deletes_every_copy_of_its_batch(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 2)
    lane.write(held(0))
    lane.tombstone(0)
    assert [r.batch for r in lane.read()] == [1]
    lane.write(held(0, run_id="again"))
    lane.tombstone(0)
    assert [r.batch for r in lane.read()] == [1]


def test_a_record_that_is_written_during_a_read_belongs_to_the_next_read(broker: FakeBroker, clock: FakeClock) -> None:
    lane, reader = Lane(broker, clock, 1), LaneReader(TOPIC, 0)
    late = iter([held(1)])

    def write_late() -> None:
        for record in late:
            lane.write(record)

    lane.consumer.before_poll, lane.consumer.passes_over_skipped = write_late, True
    assert [r.batch for r in reader.read(lane.consumer)] == [0]
    assert [r.batch for r in reader.read(lane.consumer)] == [0, 1]


def test_a_second_read_fetches_only_what_is_new_and_returns_all(broker: FakeBroker, clock: FakeClock) -> None:
    lane, reader = Lane(broker, clock, 50), LaneReader(TOPIC, 0)
    assert len(reader.read(lane.consumer)) == 50
    lane.write(held(50))
    lane.tombstone(0)
    lane.consumer.delivered = 0
    assert [r.batch for r in reader.read(lane.consumer)] == list(range(1, 51))
    assert lane.consumer.delivered == 2
    assert reader.read(lane.consumer) == lane.read()


def test_records_are_read_as_they_were_written_although_they_share_equal_values(
    broker: FakeBroker, clock: FakeClock
) -> None:
    found = Lane(broker, clock, 3).read()
    assert found == [held(batch) for batch in range(3)]
    assert found[1].start is found[0].end
    assert found[2].query_id is found[0].query_id


def test_a_read_whose_end_has_fallen_back_keeps_what_was_read_before(broker: FakeBroker, clock: FakeClock) -> None:
    """A broker that becomes leader may know an older end of the committed records for a moment."""
    lane, reader = Lane(broker, clock, 3), LaneReader(TOPIC, 0)
    for hidden_from in (None, 2, None):
        lane.partition.hidden_from = hidden_from
        assert [r.batch for r in reader.read(lane.consumer)] == [0, 1, 2]
    lane.tombstone(2)
    assert [r.batch for r in reader.read(lane.consumer)] == [0, 1]


@pytest.mark.parametrize("leftovers", [0, 5, 100])
def test_the_newest_record_is_found_before_what_aborted_attempts_left(
    broker: FakeBroker, clock: FakeClock, leftovers: int
) -> None:
    lane = Lane(broker, clock, 5)
    lane.partition.mark(leftovers)
    assert lane.last() == held(4)


def test_a_tombstone_at_the_end_of_a_lane_does_not_hide_its_newest_record(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 3)
    lane.tombstone(0)
    assert lane.last() == held(2)


@pytest.mark.parametrize("leftovers", [3, 100])
def test_a_lane_whose_first_offsets_are_gone_is_searched_to_where_it_begins(
    broker: FakeBroker, clock: FakeClock, leftovers: int
) -> None:
    lane = Lane(broker, clock, 5)
    lane.partition.mark(leftovers)
    lane.partition.low = 10
    assert lane.last() is None


def test_a_lane_that_holds_only_aborted_attempts_has_no_record(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock)
    lane.partition.mark(1000)
    assert lane.last() is None
    assert lane.read() == []


@pytest.mark.parametrize("batches", [0, 3])
def test_nothing_is_decided_about_a_fenced_lane_in_which_another_program_has_an_open_transaction(
    broker: FakeBroker, clock: FakeClock, batches: int
) -> None:
    lane = Lane(broker, clock, batches)
    lane.partition.hidden_from = stable = lane.partition.high
    lane.write(held(batches))
    with pytest.raises(LedgerUndecided, match=rf"\b{stable} of {lane.partition.high}\b") as undecided:
        lane.last()
    assert undecided.value.restart_may_help
    before = held(batches - 1) if batches else None
    assert lane.last(fenced=False) == before


def test_one_hidden_offset_is_enough_to_decide_nothing(broker: FakeBroker, clock: FakeClock) -> None:
    lane = Lane(broker, clock, 3)
    lane.partition.hidden_from = lane.partition.high
    lane.partition.write(b"key", b"of a transaction that is open")
    with pytest.raises(LedgerUndecided):
        lane.last()


def test_a_lane_that_was_never_written_to_is_empty_once_kafka_has_answered(
    broker: FakeBroker, clock: FakeClock
) -> None:
    lane = Lane(broker, clock)
    assert lane.last() is None
    assert "poll" in broker.names_of_calls()


def test_an_empty_lane_of_which_kafka_gives_no_answer_is_not_taken_for_empty(
    broker: FakeBroker, clock: FakeClock
) -> None:
    lane = Lane(broker, clock, poll_seconds=1.0)
    lane.consumer.stuck_at = 0
    with pytest.raises(SinkError, match="lane 0"):
        lane.last()
    assert SECONDS <= clock.now < 2 * SECONDS


def test_a_coordinator_that_moves_is_asked_again_and_any_other_error_names_the_lane(
    broker: FakeBroker, clock: FakeClock
) -> None:
    lane = Lane(broker, clock, 1)
    broker.fail("get_watermark_offsets", kafka_error("NOT_LEADER_FOR_PARTITION"))
    assert lane.last() == held(0)
    broker.fail("get_watermark_offsets", kafka_error("TOPIC_AUTHORIZATION_FAILED"))
    with pytest.raises(SinkError, match=r"Lane 0\b.*s\.ledger"):
        lane.last()


def test_a_reader_sees_committed_records_only_joins_no_group_and_makes_no_topic(broker: FakeBroker) -> None:
    settings = open_reader({"bootstrap.servers": "broker:9092"}).settings
    assert settings["isolation.level"] == "read_committed"
    assert settings["enable.auto.commit"] is False
    assert settings["allow.auto.create.topics"] is False
