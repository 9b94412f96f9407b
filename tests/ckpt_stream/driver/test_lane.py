"""One lane of a batch, on a Kafka in memory: fence, read the ledger, decide, and write all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ckpt_stream.driver.lane import write_lane
from ckpt_stream.errors import (
    CommitUnknown,
    EndOfInputUnknown,
    InputIncomplete,
    LedgerAhead,
    LedgerUndecided,
    ReplayDiffers,
    SinkError,
)
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord
from tests.ckpt_stream.driver.lane_writes import DEAD, LEDGER, SINK, calls, ledger, rows, spec, write
from tests.support.fake_kafka import FakeBroker, kafka_error

pytestmark = pytest.mark.unit

TIMED_OUT = kafka_error("_TIMED_OUT")


@pytest.fixture(autouse=True)
def topics(broker: FakeBroker) -> FakeBroker:
    broker.topic(SINK, 2)
    broker.topic(DEAD)
    broker.topic(LEDGER, 2)
    return broker


# The order of the steps


def test_a_lane_is_fenced_before_its_ledger_is_read(broker: FakeBroker) -> None:
    write(spec())
    steps = calls(broker, "init_transactions", "get_watermark_offsets", "begin_transaction", "commit_transaction")
    assert list(dict.fromkeys(steps)) == [
        "init_transactions", "get_watermark_offsets", "begin_transaction", "commit_transaction"
    ]  # fmt: skip
    assert steps.count("commit_transaction") == 1


def test_the_ledger_record_is_the_last_record_of_the_same_transaction(broker: FakeBroker) -> None:
    seen: list[tuple[list[bytes | None], list[LedgerRecord]]] = []
    broker.fail("commit_transaction", lambda: seen.append((broker.values(SINK), ledger(broker))))
    write(spec(), rows("a"), rows("b", "c"))
    assert [topic for name, topic in broker.calls if name == "produce"] == [SINK, SINK, SINK, LEDGER]
    assert seen == [([], [])], "readers see neither the rows nor the record before the commit"
    assert broker.values(SINK) == [b"a", b"b", b"c"]
    assert [(r.batch, r.records, r.attempt) for r in ledger(broker)] == [(0, 3, "run-1")]


def test_the_ledger_record_names_the_batchs_input_and_what_was_written(broker: FakeBroker) -> None:
    result = write(spec(settings={"dead_letter_topic": DEAD}), rows("a", "b", dead_letter=[False, True]))
    (record,) = ledger(broker)
    assert (record.digest, record.offsets, record.start, record.end) == (
        "input-0", "entry 0", {"orders": {"0": 0}}, {"orders": {"0": 10}}
    )  # fmt: skip
    assert (record.records, record.dead_letters) == (result["records"], result["dead_letters"]) == (1, 1)
    assert (record.checksum, record.dead_letter_checksum) == (ord("a"), ord("b"))
    assert str(record.checksum) == result["checksum"]


def test_only_lane_0_keeps_the_entry_of_the_offset_log(broker: FakeBroker) -> None:
    write(spec(lanes=2), lane=1)
    assert [record.offsets for record in ledger(broker, 1)] == [None]


def test_the_record_that_is_older_than_the_ledgers_history_is_deleted(broker: FakeBroker) -> None:
    for batch in range(5):
        write(spec(batch))
    keys = [(entry.key, entry.value is None) for entry in broker.partition(LEDGER).committed]
    deleted = [key for key, is_tombstone in keys if is_tombstone]
    assert deleted == [key for key, is_tombstone in keys if not is_tombstone][:2]


# The decision


def test_a_batch_that_is_in_the_sink_is_skipped(broker: FakeBroker) -> None:
    assert write(spec())["skipped"] is False
    result = write(spec())
    assert (result["skipped"], result["differs"], result["records"]) == (True, False, 2)
    assert broker.values(SINK) == [b"a", b"b"]
    assert len(ledger(broker)) == 1
    assert calls(broker, "commit_transaction") == ["commit_transaction"]


def test_without_the_ledgers_decision_the_batch_would_be_written_again(broker: FakeBroker) -> None:
    """The negative control of the tests of the decision."""
    write(spec())
    write(spec(settings={"ignore_ledger": True}))
    assert broker.values(SINK) == [b"a", b"b", b"a", b"b"]


def test_a_ledger_that_is_ahead_is_refused_before_anything_is_begun(broker: FakeBroker) -> None:
    for batch in range(3):
        write(spec(batch))
    broker.calls.clear()
    with pytest.raises(LedgerAhead):
        write(spec(1))
    assert calls(broker, "begin_transaction", "produce") == []


def test_nothing_is_written_while_another_programs_transaction_hides_records_of_the_ledger(broker: FakeBroker) -> None:
    """Readers see batch 0 as the newest one, although batch 1 is in the sink."""
    write(spec(0))
    broker.partition(LEDGER).hidden_from = broker.partition(LEDGER).high
    write(spec(1))
    broker.calls.clear()
    with pytest.raises(LedgerUndecided):
        write(spec(1))
    assert broker.values(SINK) == [b"a", b"b"] * 2
    assert calls(broker, "begin_transaction", "produce") == []


@pytest.mark.parametrize("replay", [("a", "c"), ("a",), ("a", "b", "b"), ()])
def test_a_skipped_lane_whose_replay_differs_is_refused(broker: FakeBroker, replay: tuple[str, ...]) -> None:
    write(spec())
    with pytest.raises(ReplayDiffers) as refused:
        write(spec(), rows(*replay))
    assert "orders" in refused.value.helps
    assert broker.values(SINK) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [("dead_letter", [False, True], [True, False]), ("partition", [0, 1], [1, 0])],
)
def test_a_replay_that_sends_a_record_elsewhere_differs(
    broker: FakeBroker, column: str, before: list[Any], after: list[Any]
) -> None:
    settings = {"dead_letter_topic": DEAD}
    write(spec(settings=settings), rows("a", "b", **{column: before}))
    with pytest.raises(ReplayDiffers):
        write(spec(settings=settings), rows("a", "b", **{column: after}))


def test_an_identical_replay_with_dead_letters_and_partitions_is_the_same(broker: FakeBroker) -> None:
    settings = {"dead_letter_topic": DEAD}
    columns: dict[str, Any] = {"dead_letter": [False, True], "partition": [1, 0]}
    write(spec(settings=settings), rows("a", "b", **columns))
    assert write(spec(settings=settings), rows("a", "b", **columns))["differs"] is False


def test_a_replay_of_which_only_the_dead_letters_differ_differs(broker: FakeBroker) -> None:
    settings = {"dead_letter_topic": DEAD}
    write(spec(settings=settings), rows("a", "b", dead_letter=[False, True]))
    with pytest.raises(ReplayDiffers):
        write(spec(settings=settings), rows("a", "c", dead_letter=[False, True]))


def test_a_replay_that_may_differ_is_reported_and_nothing_is_written(broker: FakeBroker) -> None:
    write(spec())
    result = write(spec(may_differ=True), rows("c"))
    assert (result["skipped"], result["differs"]) == (True, True)
    assert broker.values(SINK) == [b"a", b"b"]


def test_the_rows_of_another_order_are_the_same_replay(broker: FakeBroker) -> None:
    write(spec())
    assert write(spec(), rows("b"), rows("a"))["differs"] is False


def test_a_replay_over_an_accepted_loss_is_not_compared(broker: FakeBroker) -> None:
    write(spec())
    result = write(spec(source_lost=True), rows("a"))
    assert (result["skipped"], result["differs"]) == (True, False)


def test_a_lane_in_an_older_format_of_the_ledger_differs_from_every_replay_in_the_newer_one(broker: FakeBroker) -> None:
    write(spec(ledger_format=1))
    with pytest.raises(ReplayDiffers):
        write(spec())
    assert write(spec(ledger_format=1))["differs"] is False


def test_a_lane_that_is_only_compared_fences_and_writes_nothing(broker: FakeBroker) -> None:
    result = write(spec(only_compare=True))
    assert (result["skipped"], result["records"]) == (False, 2)
    write(spec())
    assert write(spec(only_compare=True))["skipped"] is True
    with pytest.raises(ReplayDiffers):
        write(spec(only_compare=True), rows("c"))
    assert calls(broker, "init_transactions") == ["init_transactions"], "the one lane that was written"


# The proof of the end of the input


@pytest.mark.parametrize("end", [b"", b"\xff", b"\xff\xff\xff"])
def test_a_lane_whose_input_was_cut_commits_nothing_and_aborts(broker: FakeBroker, end: bytes) -> None:
    with pytest.raises(InputIncomplete):
        write(spec(), end=end)
    assert (broker.values(SINK), ledger(broker)) == ([], [])
    assert calls(broker, "commit_transaction", "abort_transaction") == ["abort_transaction"]


def test_a_lane_whose_end_of_input_is_unknown_commits_nothing_and_aborts(broker: FakeBroker) -> None:
    with pytest.raises(EndOfInputUnknown):
        write(spec(), end=(-1).to_bytes(4, "big", signed=True))
    assert calls(broker, "commit_transaction", "abort_transaction") == ["abort_transaction"]


def test_the_ledger_record_is_not_even_sent_without_the_proof(broker: FakeBroker) -> None:
    with pytest.raises(InputIncomplete):
        write(spec(), end=b"")
    assert LEDGER not in [topic for name, topic in broker.calls if name == "produce"]


def test_a_skipped_lane_needs_the_proof_too(broker: FakeBroker) -> None:
    write(spec())
    with pytest.raises(InputIncomplete):
        write(spec(), end=b"")


# Errors


@pytest.mark.parametrize("call", ["produce", "flush"])
def test_an_error_before_the_commit_aborts_the_transaction(broker: FakeBroker, call: str) -> None:
    broker.fail(call, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write(spec())
    assert calls(broker, "commit_transaction", "abort_transaction") == ["abort_transaction"]
    assert write(spec())["skipped"] is False
    assert broker.values(SINK) == [b"a", b"b"]


def test_an_error_in_the_transforms_rows_aborts_the_transaction(broker: FakeBroker) -> None:
    def failing() -> Iterator[Any]:
        yield rows("a")
        raise RuntimeError("the transform failed")

    with pytest.raises(RuntimeError):
        write_lane(spec(), 0, failing())
    assert broker.values(SINK) == []
    assert calls(broker, "commit_transaction", "abort_transaction") == ["abort_transaction"]


def test_a_commit_whose_answer_is_lost_is_never_aborted_and_the_next_attempt_skips(broker: FakeBroker) -> None:
    broker.fail("answer_to_commit", TIMED_OUT)
    with pytest.raises(CommitUnknown):
        write(spec())
    assert calls(broker, "abort_transaction") == []
    assert write(spec())["skipped"] is True
    assert broker.values(SINK) == [b"a", b"b"]


def test_a_commit_that_never_arrived_is_written_by_the_next_attempt(broker: FakeBroker) -> None:
    broker.fail("commit_transaction", TIMED_OUT)
    with pytest.raises(CommitUnknown):
        write(spec())
    assert calls(broker, "abort_transaction") == []
    assert write(spec())["skipped"] is False
    assert broker.values(SINK) == [b"a", b"b"]


def test_a_record_that_kafka_refuses_ends_the_lane_and_nothing_of_it_is_committed(broker: FakeBroker) -> None:
    broker.topics[SINK].settings["max.message.bytes"] = "1"
    with pytest.raises(SinkError):
        write(spec(), rows("a", "much too long"))
    assert (broker.values(SINK), ledger(broker)) == ([], [])


@pytest.mark.parametrize("fault", ["get_watermark_offsets", "begin_transaction"])
def test_the_client_is_let_go_whatever_happens(broker: FakeBroker, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    from ckpt_stream.kafka.transaction import Transaction

    close: Callable[[Transaction], None] = Transaction.close
    monkeypatch.setattr(Transaction, "close", lambda made: (closed.append(made.id), close(made)))
    broker.fail(fault, RuntimeError("a bug"))
    with pytest.raises(RuntimeError):
        write(spec())
    assert len(closed) == 1


# The records


def headers(broker: FakeBroker, topic: str = SINK) -> list[tuple[bytes | None, tuple[Any, ...]]]:
    found = [entry for partition in broker.topics[topic].partitions for entry in partition.committed]
    return [(entry.value, entry.headers) for entry in found]


def test_dead_letters_go_to_their_own_topic_in_the_same_transaction(broker: FakeBroker) -> None:
    result = write(spec(settings={"dead_letter_topic": DEAD}), rows("a", "b", "c", dead_letter=[False, True, False]))
    assert (broker.values(SINK), broker.values(DEAD)) == ([b"a", b"c"], [b"b"])
    assert (result["records"], result["dead_letters"]) == (2, 1)
    assert calls(broker, "commit_transaction") == ["commit_transaction"]


def test_headers_are_written_in_their_order_and_may_be_missing(broker: FakeBroker) -> None:
    given = [[{"key": "x", "value": b"1"}, {"key": "x", "value": None}], None]
    write(spec(), rows("a", "b", headers=given))
    assert headers(broker) == [(b"a", (("x", b"1"), ("x", None))), (b"b", ())]


def test_a_record_goes_to_the_partition_that_the_transform_chose(broker: FakeBroker) -> None:
    write(spec(), rows("a", "b", "c", partition=[1, 0, 1]))
    assert (broker.values(SINK, 0), broker.values(SINK, 1)) == ([b"b"], [b"a", b"c"])
    assert ledger(broker)[0].placed is not None


def test_the_ledger_has_no_sum_by_partition_if_kafkas_client_chooses_one(broker: FakeBroker) -> None:
    write(spec(), rows("a", "b", partition=[1, None]))
    assert ledger(broker)[0].placed is None


def test_the_audit_header_numbers_records_and_dead_letters_each_from_0(broker: FakeBroker) -> None:
    settings = {"audit": True, "dead_letter_topic": DEAD}
    write(
        spec(settings=settings),
        rows("a", "b", "x", dead_letter=[False, True, False]),
        rows("c", "d", "e", dead_letter=[True, False, False]),
    )
    numbers = {value: dict(pairs)["ckpt"] for value, pairs in headers(broker) + headers(broker, DEAD)}
    assert numbers == {b"a": b"0/0/0", b"x": b"0/0/1", b"d": b"0/0/2", b"e": b"0/0/3", b"b": b"0/0/0", b"c": b"0/0/1"}


def test_records_keep_their_order_when_the_clients_queue_is_full(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.fail("produce", lambda: None, BufferError("full"), BufferError("full"))
    write(spec(), rows("a", "b", "c"))
    assert broker.values(SINK) == [b"a", b"b", b"c"]


def test_a_lane_without_rows_is_committed_too(broker: FakeBroker) -> None:
    result = write(spec(), rows())
    assert (result["records"], result["skipped"]) == (0, False)
    assert [record.records for record in ledger(broker)] == [0]


def test_rows_that_were_found_to_be_those_of_an_earlier_run_are_noted_as_its_attempt(broker: FakeBroker) -> None:
    write(replace(spec(), attempt="run-0"))
    assert [(record.run_id, record.attempt) for record in ledger(broker)] == [("run-1", "run-0")]
