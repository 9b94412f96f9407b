"""Preflight: a start that would lose or double records is refused, with what, risk and the command that helps."""

from __future__ import annotations

import pickle
from dataclasses import fields
from typing import Any

import pytest

from airflow_ckpt.exceptions import BadArgument, PreflightRefused
from airflow_ckpt.streams.observation import SourcePosition
from airflow_ckpt.streams.preflight import (
    PREFLIGHT_KINDS,
    SOON_SECONDS,
    PreflightFinding,
    StartConditions,
    check,
    refuse_unsafe_start,
)
from ckpt_stream.errors import LedgerLost, LedgerUndecided, SinkError
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointFinding, CheckpointReport
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.samples import a_checkpoint, a_status, a_stream

pytestmark = pytest.mark.unit

STREAM = a_stream()
NOW = 1_000_000.0
HOUR = 3600.0


def ends(*partitions: tuple[int, int]) -> TopicEnds:
    """A topic whose partitions reach from the one offset to the other."""
    earliest, stable = dict(enumerate(p[0] for p in partitions)), dict(enumerate(p[1] for p in partitions))
    return TopicEnds(earliest, stable, stable)


def at_offsets(*offsets: int) -> CheckpointReport:
    return a_checkpoint(committed_offsets={"orders_in": {str(p): o for p, o in enumerate(offsets)}})


def conditions(**values: Any) -> StartConditions:
    """Everything is well, except for what is given."""
    well: dict[str, Any] = {
        "status": a_status("FAILED"),
        "checkpoint": at_offsets(50),
        "topics": {"orders_in": ends((0, 100))},
        "transaction_max_ms": 900_000,
        "now": NOW,
    }
    given = {**well, **values}
    position = {f.name: given.pop(f.name) for f in fields(SourcePosition) if f.name in given}
    return StartConditions(position=SourcePosition(**position), **given)


def found(**values: Any) -> list[PreflightFinding]:
    return check(STREAM, conditions(**values))


def only(**values: Any) -> PreflightFinding:
    findings = found(**values)
    assert [f.kind for f in findings] == [findings[0].kind]
    return findings[0]


def test_nothing_prevents_a_start_when_everything_is_well() -> None:
    assert found() == []


def test_nothing_prevents_the_first_start_of_a_stream() -> None:
    nothing = CheckpointReport(findings=(CheckpointFinding("no_checkpoint", "There is no checkpoint."),))
    assert found(status=a_status("NEW"), checkpoint=nothing) == []


@pytest.mark.parametrize("state", ["STARTING", "RUNNING", "IDLE", "STALLED"])
def test_a_driver_that_lives_prevents_a_second_one(state: str) -> None:
    finding = only(status=a_status(state, run="run-7"))
    assert (finding.kind, finding.unsafe) == ("driver_alive", True)
    assert "run-7" in finding.what
    assert "airflow-ckpt stop file:///data/orders" in finding.helps


@pytest.mark.parametrize("state", ["FAILED", "LOST", "STOPPED", "FINISHED", "NEW"])
def test_a_driver_that_is_gone_does_not(state: str) -> None:
    assert found(status=a_status(state, run="run-7")) == []


def test_records_that_retention_deleted_unread_are_named_with_their_offsets() -> None:
    finding = only(checkpoint=at_offsets(50), topics={"orders_in": ends((80, 100))})
    assert (finding.kind, finding.unsafe) == ("data_lost", True)
    assert finding.lost == (LostRange("orders_in", 0, 50, 80),)
    assert [part in finding.what for part in ("orders_in-0", "50", "80")] == [True] * 3
    assert "30 offsets (50 to 79)" in finding.risk


def test_what_was_lost_is_told_range_by_range() -> None:
    findings = found(checkpoint=at_offsets(50, 60), topics={"orders_in": ends((80, 100), (61, 100))})
    assert [(f.kind, f.lost) for f in findings] == [
        ("data_lost", (LostRange("orders_in", 0, 50, 80),)),
        ("data_lost", (LostRange("orders_in", 1, 60, 61),)),
    ]


def test_a_first_batch_that_is_in_doubt_may_have_lost_what_it_was_to_read() -> None:
    """Without it each restart fails over the same offsets."""
    first = a_checkpoint(None, in_doubt=0, start={"orders_in": {"0": 50}}, end={"orders_in": {"0": 90}})
    finding = only(checkpoint=first, topics={"orders_in": ends((80, 100))})
    assert (finding.kind, finding.lost) == ("data_lost", (LostRange("orders_in", 0, 50, 80),))


def test_a_new_topic_whose_head_was_deleted_is_not_read_unasked() -> None:
    source = {"orders_in": ends((0, 100)), "orders_new": ends((30, 40), (0, 5))}
    findings = found(topics=source)
    assert [(f.kind, f.unsafe) for f in findings] == [("head_trimmed", True), ("partitions_added", False)]
    assert findings[0].lost == (LostRange("orders_new", 0, 0, 30),)
    assert [part in findings[0].what for part in ("orders_new-0", "30")] == [True] * 2
    assert "30 offsets (0 to 29)" in findings[0].risk


def test_a_topic_that_the_source_has_no_more_is_named_with_where_the_checkpoint_stands_in_it() -> None:
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {"0": 50}, "orders_old": {"0": 7, "1": 9}})
    finding = only(checkpoint=checkpoint)
    assert (finding.kind, finding.unsafe) == ("topics_gone", True)
    assert "orders_old (partition 0 at 7, 1 at 9)" in finding.what
    assert finding.lost == (LostRange("orders_old", 0, 7, None), LostRange("orders_old", 1, 9, None))


def test_a_topic_that_is_missing_is_not_called_gone_as_well() -> None:
    assert only(topics={"orders_in": None}).kind == "topic_missing"


def test_a_topic_that_begins_where_the_checkpoint_goes_on_has_lost_nothing() -> None:
    assert found(checkpoint=at_offsets(80), topics={"orders_in": ends((80, 100))}) == []


def test_a_checkpoint_that_has_read_nothing_cannot_lose_anything() -> None:
    assert found(checkpoint=a_checkpoint(None), topics={"orders_in": ends((80, 100))}) == []


@pytest.mark.parametrize(("left", "words"), [(HOUR, "in 1 h"), (-5, "at any moment")])
def test_retention_that_is_about_to_pass_the_first_unread_record_is_a_warning(left: float, words: str) -> None:
    since = {("orders_in", 0): NOW - 7 * 24 * HOUR + left}
    finding = only(retention_ms={"orders_in": 7 * 24 * 3600 * 1000}, unread_since=since)
    assert (finding.kind, finding.unsafe) == ("data_soon_lost", False)
    assert words in finding.what


@pytest.mark.parametrize("retention", [None, -1, int((7 * 24 * HOUR + SOON_SECONDS) * 1000)])
def test_retention_that_is_far_away_or_none_is_not_worth_a_word(retention: int | None) -> None:
    since = {("orders_in", 0): NOW - 7 * 24 * HOUR}
    assert found(retention_ms={"orders_in": retention}, unread_since=since) == []


@pytest.mark.parametrize(("age", "kinds"), [(1, []), (8 * HOUR, []), (9.5 * HOUR, ["data_soon_lost"])])
def test_where_records_are_kept_for_hours_one_that_has_just_come_is_in_no_danger(age: float, kinds: list[str]) -> None:
    """Half a day: a stream that runs nearly always has a record that it has not read yet."""
    seen = found(retention_ms={"orders_in": int(12 * HOUR * 1000)}, unread_since={("orders_in", 0): NOW - age})
    assert [finding.kind for finding in seen] == kinds


def test_partitions_that_are_gone_are_unsafe() -> None:
    finding = only(checkpoint=at_offsets(50, 60, 70), topics={"orders_in": ends((0, 100))})
    assert (finding.kind, finding.unsafe) == ("partitions_gone", True)
    assert "no partition 1, 2 any more" in finding.what
    # A user who allows this allows it for these partitions: the driver is told which.
    assert finding.lost == (LostRange("orders_in", 1, 60, None), LostRange("orders_in", 2, 70, None))


def test_partitions_that_were_added_are_worth_a_word_and_no_refusal() -> None:
    finding = only(checkpoint=at_offsets(50), topics={"orders_in": ends((0, 100), (0, 5))})
    assert (finding.kind, finding.unsafe) == ("partitions_added", False)
    refuse_unsafe_start(STREAM, [finding], [])


def test_every_missing_topic_is_named() -> None:
    findings = found(topics={"orders_in": None}, missing_topics=["orders_out"])
    assert [f.kind for f in findings] == ["topic_missing"] * 2
    assert "orders_in" in findings[0].what
    assert "orders_out" in findings[1].what


def test_a_pattern_that_matches_no_topic_is_a_missing_topic() -> None:
    stream = a_stream(source=(), source_pattern="orders_[0-9]+")
    findings = check(stream, conditions(topics={}))
    assert [f.kind for f in findings] == ["topic_missing"]
    assert "orders_[0-9]+" in findings[0].what


def test_kafka_that_does_not_answer_is_one_finding_and_not_many() -> None:
    finding = only(
        topics=None,
        kafka_error="NoAnswer",
        ledger_refusal=SinkError("no"),
        transaction_max_ms=1,
    )
    assert (finding.kind, finding.what, finding.unsafe) == ("kafka_unreachable", "NoAnswer", True)


def test_kafka_that_was_not_asked_is_unknown_and_not_taken_for_well() -> None:
    finding = only(topics=None)
    assert (finding.kind, finding.unsafe, finding.temporary) == ("kafka_unreachable", True, True)


def test_each_damage_of_the_checkpoint_is_a_finding() -> None:
    damage = (
        CheckpointFinding("torn", "offsets/4 is torn.", "restore it"),
        CheckpointFinding("empty", "commits/3 is empty."),
    )
    findings = found(checkpoint=a_checkpoint(findings=damage))
    assert [(f.kind, f.what) for f in findings] == [
        ("checkpoint_unreadable", "offsets/4 is torn."),
        ("checkpoint_unreadable", "commits/3 is empty."),
    ]
    assert all(f.unsafe and not f.temporary for f in findings), "Spark would refuse it, or begin somewhere else"


def test_a_transaction_timeout_above_the_brokers_maximum_is_refused_with_both_numbers() -> None:
    finding = only(transaction_max_ms=30_000)
    assert finding.kind == "transaction_timeout"
    assert "1 min" in finding.what
    assert "30 s" in finding.what
    assert found(transaction_max_ms=60_000) == []
    assert found(transaction_max_ms=None) == []


def test_a_ledger_that_disagrees_with_the_checkpoint_is_refused_with_the_drivers_own_words() -> None:
    refusal = LedgerLost("The ledger ends at 3.", "Batch 4 would be doubled.", "run `repair`.")
    finding = only(ledger_refusal=refusal)
    assert (finding.kind, finding.what) == ("ledger", f"LedgerLost: {refusal.found}")
    assert (finding.risk, finding.helps) == (refusal.risk, refusal.helps)


def test_a_ledger_that_could_not_be_compared_is_not_taken_for_one_that_agrees() -> None:
    refusal = SinkError("the ledger cannot be read")
    finding = only(ledger_refusal=refusal)
    assert (finding.kind, finding.unsafe) == ("ledger", True)
    assert str(refusal) in finding.what


def test_a_ledger_that_is_undecided_is_looked_at_again_and_not_refused_for_good() -> None:
    finding = only(ledger_refusal=LedgerUndecided("a transaction has not ended"))
    assert (finding.kind, finding.unsafe, finding.temporary) == ("ledger", True, True)
    assert PreflightRefused("orders", [finding]).temporary


def test_what_is_unsafe_comes_first() -> None:
    findings = found(checkpoint=at_offsets(50), topics={"orders_in": ends((80, 100), (0, 5))})
    assert [f.unsafe for f in findings] == [True, False]


# --- the refusal -------------------------------------------------------------------------------------------------------

LOST = PreflightFinding("data_lost", "Offsets are gone.", "Records are lost.", "put them back.")
GONE = PreflightFinding("partitions_gone", "Partition 1 is gone.", "Offsets mean nothing.", "start over.")
ADDED = PreflightFinding("partitions_added", "Partition 2 is new.", "It is read.", "nothing.", unsafe=False)


def test_a_refusal_says_what_the_risk_what_helps_and_how_to_start_despite_it() -> None:
    with pytest.raises(PreflightRefused) as caught:
        refuse_unsafe_start(STREAM, [LOST, GONE, ADDED], [])
    text = str(caught.value)
    assert caught.value.stream in text
    assert all(part in text for one in (LOST, GONE) for part in (one.kind, one.what, one.risk, one.helps))
    assert 'allow=["data_lost", "partitions_gone"]' in text
    assert "partitions_added" not in text
    assert caught.value.findings == (LOST, GONE)


def test_a_finding_that_is_allowed_by_name_does_not_refuse_and_no_other_is_allowed_with_it() -> None:
    refuse_unsafe_start(STREAM, [LOST], ["data_lost"])
    with pytest.raises(PreflightRefused) as caught:
        refuse_unsafe_start(STREAM, [LOST, GONE], ["data_lost"])
    assert caught.value.findings == (GONE,)


def test_a_name_that_no_finding_has_is_an_error_even_if_nothing_was_found() -> None:
    with pytest.raises(BadArgument, match=r"data_lots.*data_lost"):
        refuse_unsafe_start(STREAM, [], ["data_lots"])


def test_a_refusal_survives_the_way_from_one_process_to_another() -> None:
    refused = PreflightRefused("orders", [LOST, GONE])
    again = pickle.loads(pickle.dumps(refused))  # noqa: S301 - our own
    assert (str(again), again.findings) == (str(refused), refused.findings)


def test_every_kind_can_be_allowed_and_has_a_name_of_its_own() -> None:
    refuse_unsafe_start(STREAM, [], PREFLIGHT_KINDS)
    assert len(set(PREFLIGHT_KINDS)) == len(PREFLIGHT_KINDS)
