"""Records that the source has lost unread, with a real broker: what was accepted is passed over, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_ckpt.exceptions import PreflightRefused
from airflow_ckpt.streams.preflight import PreflightFinding
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.driver.sink import Sink
from ckpt_stream.protocol.data_loss import LostRange
from tests.support.kafka_io import produce
from tests.support.streams import StreamUnderTest, copy, numbered
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

Make = Callable[..., StreamUnderTest]


def between(first: int, until: int) -> list[str]:
    return numbered(until - first, first)


def delete(under_test: StreamUnderTest, until: int, topic: str | None = None) -> None:
    admin = AdminClient(dict(under_test.kafka))
    deleted = admin.delete_records([TopicPartition(topic or under_test.source, 0, until)])
    assert [future.result(30).low_watermark for future in deleted.values()] == [until]


def accepted(*ranges: LostRange) -> list[dict[str, Any]]:
    return [one.as_dict() for one in ranges]


def refused(under_test: StreamUnderTest, outcome: tuple[int, str], *words: str) -> None:
    code, line = outcome
    assert (code, "FAILED: DataLost: " in line) == (1, True), line
    for word in words:
        assert word in line, f"{word!r} is not in: {line}"
    failure = under_test.runs()[-1].failure
    assert failure is not None
    assert failure.restart_may_help is False


class Fault:
    """Something that happens to a run when it has planned this batch, before or after its lanes."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, batch: int, happens: Callable[[], None], *, after: bool = False
    ):
        self.hits = 0
        original: Any = Sink._write_batch

        def one_batch(sink: Any, rows: Any, number: int, **options: Any) -> Any:
            hit = number == batch and self.hits == 0
            self.hits += hit
            if hit and not after:
                happens()
            done = original(sink, rows, number, **options)
            if hit and after:
                happens()
            return done

        monkeypatch.setattr(Sink, "_write_batch", one_batch)


def dies() -> None:
    raise RuntimeError("the driver dies here")


@pytest.fixture
def behind(spark: Any, stream: Make) -> StreamUnderTest:
    """A stream that has read 10 records of 30, of which 10 to 19 were deleted meanwhile."""
    under_test = stream(max_offsets_per_batch=5)
    under_test.feed(*between(0, 10))
    assert under_test.drive(spark, copy)[0] == 0
    under_test.feed(*between(10, 30))
    delete(under_test, 20)
    return under_test


def test_a_loss_that_was_not_accepted_is_refused_by_name_and_writes_nothing(
    spark: Any, behind: StreamUnderTest
) -> None:
    source = behind.source
    refused(behind, behind.drive(spark, copy), f"{source}-0 offsets 10 to 19", "--allow data_lost")
    # Neither does a smaller one cover it, nor one of another partition.
    for other in (LostRange(source, 0, 10, 19), LostRange(source, 1, 10, 20)):
        outcome = behind.drive(spark, copy, accepted_loss=accepted(other))
        refused(behind, outcome, f"{source}-0 offsets 10 to 19", f"Only the loss of {other} was accepted")
    assert behind.values() == between(0, 10)


def test_an_accepted_loss_is_passed_over_in_a_batch_of_its_own_and_costs_no_other_record(
    spark: Any, behind: StreamUnderTest
) -> None:
    loss = accepted(LostRange(behind.source, 0, 10, 20))
    before = behind.last_batch("commits") or 0
    code, line = behind.drive(spark, copy, accepted_loss=loss)
    assert (code, line.split()[-1]) == (0, "FINISHED")
    assert behind.values() == between(0, 10) + between(20, 30)
    gap, first, *_ = [record for record in behind.ledger() if record.batch > before]
    assert (gap.batch, gap.start[behind.source], gap.end[behind.source]) == (before + 1, {"0": 10}, {"0": 20})
    assert (gap.records, first.start[behind.source], first.records) == (0, {"0": 20}, 5)
    # Accepted once is accepted for one start: the stream now goes on without it.
    behind.feed(*between(30, 35))
    assert behind.drive(spark, copy)[0] == 0
    assert behind.values() == between(0, 10) + between(20, 35)


def test_a_later_loss_ends_the_very_run_that_had_accepted_one(
    spark: Any, behind: StreamUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch 2 passes over the gap; offsets 20 to 24 are planned for batch 3 when 20 to 22 go."""
    fault = Fault(monkeypatch, 3, lambda: delete(behind, 23))
    loss = accepted(LostRange(behind.source, 0, 10, 20))
    refused(behind, behind.drive(spark, copy, accepted_loss=loss), f"{behind.source}-0 offsets 20 to 22")
    assert (fault.hits, behind.values()) == (1, between(0, 10))
    # Neither does the former acceptance help the next start; a new one does.
    refused(behind, behind.drive(spark, copy, accepted_loss=loss), f"{behind.source}-0 offsets 20 to 22")
    more = accepted(LostRange(behind.source, 0, 20, 23))
    assert behind.drive(spark, copy, accepted_loss=more)[0] == 0
    assert behind.values() == between(0, 10) + between(23, 30)


def test_a_batch_in_doubt_that_is_not_in_the_sink_is_planned_again_around_the_loss(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = stream()
    under_test.feed(*between(0, 10))
    assert under_test.drive(spark, copy)[0] == 0
    under_test.feed(*between(10, 30))
    fault = Fault(monkeypatch, 1, dies)
    assert under_test.drive(spark, copy)[0] == 1
    assert (fault.hits, under_test.last_batch("offsets"), under_test.last_batch("commits")) == (1, 1, 0)
    delete(under_test, 20)
    refused(under_test, under_test.drive(spark, copy), f"{under_test.source}-0 offsets 10 to 19")
    loss = accepted(LostRange(under_test.source, 0, 10, 20))
    assert under_test.drive(spark, copy, accepted_loss=loss)[0] == 0
    assert under_test.values() == between(0, 10) + between(20, 30)


def test_a_first_batch_in_doubt_is_planned_again_too(spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    under_test = stream()
    under_test.feed(*between(0, 10))
    Fault(monkeypatch, 0, dies)
    assert under_test.drive(spark, copy)[0] == 1
    delete(under_test, 4)
    loss = accepted(LostRange(under_test.source, 0, 0, 4))
    assert under_test.drive(spark, copy, accepted_loss=loss)[0] == 0
    assert under_test.values() == between(4, 10)


def test_a_stream_without_a_batch_begins_behind_an_accepted_loss(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = stream()
    under_test.feed(*between(0, 10))
    Fault(monkeypatch, 0, dies)
    assert under_test.drive(spark, copy)[0] == 1
    for name in ("0", ".0.crc"):
        (under_test.checkpoint / "offsets" / name).unlink(missing_ok=True)
    assert under_test.last_batch("offsets") is None
    delete(under_test, 4)
    refused(under_test, under_test.drive(spark, copy), f"{under_test.source}-0 offsets 0 to 3")
    loss = accepted(LostRange(under_test.source, 0, 0, 4))
    assert under_test.drive(spark, copy, accepted_loss=loss)[0] == 0
    assert under_test.values() == between(4, 10)


@pytest.mark.parametrize("cut", [20, 40])
def test_a_batch_in_doubt_that_is_in_the_sink_stays_as_it_was_planned(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Its records 10 to 29 are in the sink; then the source loses some of them, or more than them, too."""
    under_test = stream()
    under_test.feed(*between(0, 10))
    assert under_test.drive(spark, copy)[0] == 0
    under_test.feed(*between(10, 30))
    fault = Fault(monkeypatch, 1, dies, after=True)
    assert under_test.drive(spark, copy)[0] == 1
    assert (fault.hits, under_test.last_batch("commits"), under_test.values()) == (1, 0, between(0, 30))
    under_test.feed(*between(30, 50))
    delete(under_test, cut)
    loss = accepted(LostRange(under_test.source, 0, 10, cut))
    assert under_test.drive(spark, copy, accepted_loss=loss)[0] == 0
    assert under_test.values() == between(0, 30) + between(max(30, cut), 50)


def test_more_that_is_lost_while_a_batch_in_doubt_is_replayed_is_not_passed_over_in_silence(
    spark: Any, stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two lanes one is in the sink: the other one's records are read again, by a query that does not fail on losses."""
    under_test = stream(lanes=2)
    under_test.feed(*between(0, 10))
    assert under_test.drive(spark, copy)[0] == 0
    under_test.feed(*between(10, 30))
    Fault(monkeypatch, 1, dies, after=True)
    assert under_test.drive(spark, copy)[0] == 1
    delete(under_test, 15)
    again = Fault(monkeypatch, 1, lambda: delete(under_test, 20))
    loss = accepted(LostRange(under_test.source, 0, 10, 15))
    refused(under_test, under_test.drive(spark, copy, accepted_loss=loss), f"{under_test.source}-0 offsets 10 to 19")
    assert (again.hits, under_test.last_batch("commits")) == (1, 0)


def counted(events: Any) -> Any:
    return events.groupBy("key").count().selectExpr("key", "cast(count as string) as value")


def too_long(events: Any) -> Any:
    """The same counts, in records that no topic takes: state is written, and the sink gets nothing."""
    return counted(events).selectExpr("key", "rpad(value, 3000000, 'x') as value")


@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_stream_with_state_keeps_it_over_a_gap(spark: Any, stream: Make, in_doubt: bool) -> None:
    """Neither the records that are lost nor an attempt at the batch in doubt, with them, is left in its state."""
    under_test = stream(output_mode="update")
    under_test.feed(*between(0, 10), keys=1)
    assert under_test.drive(spark, counted)[0] == 0
    under_test.feed(*between(10, 30), keys=1)
    if in_doubt:
        code, line = under_test.drive(spark, too_long)
        assert (code, "SinkRejected" in line, under_test.last_batch("offsets")) == (1, True, 1), line
        assert len(list(under_test.checkpoint.glob("state/0/*/2.*"))) > 0
    delete(under_test, 20)
    loss = accepted(LostRange(under_test.source, 0, 10, 20))
    assert under_test.drive(spark, counted, accepted_loss=loss)[0] == 0
    assert under_test.values() == ["10", "20"]


# --- topics that come and go --------------------------------------------------------------------------------------------


@pytest.fixture
def matching(spark: Any, kafka: Any, topics: Callable[..., str], tmp_path: Path) -> tuple[StreamUnderTest, str]:
    """A stream that has read two topics of a pattern, and the second one of them."""
    first, second, sink = topics("every-first"), topics("every-second"), topics("sink")
    # One test's topics are not another's.
    names = [name.rpartition("-")[2] for name in (first, second)]
    settings = {"source": [], "source_pattern": f"every-(third-.*{names[0]}.*|.*-({'|'.join(names)}))"}
    under_test = StreamUnderTest("copy_topic", tmp_path, kafka.client_config(), first, sink, settings)
    for topic, values in ((first, between(0, 5)), (second, between(5, 10))):
        produce(under_test.kafka, topic, [(None, value) for value in values])
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == between(0, 10)
    return under_test, second


def preflight(under_test: StreamUnderTest) -> list[PreflightFinding]:
    """What speaks against a start, as Airflow finds it."""
    stream = Stream(
        name=under_test.name, application="copy_topic.py", checkpoint=str(under_test.checkpoint), sink=under_test.sink,
        source_pattern=under_test.settings["source_pattern"],
    )  # fmt: skip
    sources = StreamAccess(stream, under_test.files, under_test.kafka, None)
    control = StreamControl(sources, lambda order: None, "a test")  # type: ignore[arg-type,return-value]
    found = [finding for finding in control.preflight() if finding.unsafe]
    if found:
        with pytest.raises(PreflightRefused):
            control.submit()
    return found


def goes_on(under_test: StreamUnderTest, spark: Any, found: list[PreflightFinding], words: str) -> None:
    """Refused without the finding being allowed, and well with it."""
    refused(under_test, under_test.drive(spark, copy), words)
    loss = accepted(*(one for finding in found for one in finding.lost))
    assert under_test.drive(spark, copy, accepted_loss=loss)[0] == 0
    assert preflight(under_test) == []


def test_a_new_topic_whose_head_was_deleted_is_read_from_its_first_record_once_that_is_allowed(
    spark: Any, matching: tuple[StreamUnderTest, str], topics: Callable[..., str]
) -> None:
    under_test, _ = matching
    third = topics(f"every-third-{under_test.source.rpartition('-')[2]}")
    produce(under_test.kafka, third, [(None, value) for value in between(10, 20)])
    delete(under_test, 4, third)
    found = preflight(under_test)
    assert [(finding.kind, finding.lost) for finding in found] == [("head_trimmed", (LostRange(third, 0, 0, 4),))]
    goes_on(under_test, spark, found, f"{third}-0 offsets 0 to 3")
    assert under_test.values() == between(0, 10) + between(14, 20)


def test_a_topic_that_was_deleted_is_done_without_once_that_is_allowed(
    spark: Any, matching: tuple[StreamUnderTest, str]
) -> None:
    under_test, second = matching
    admin = AdminClient(dict(under_test.kafka))
    admin.delete_topics([second])[second].result(30)
    wait_for(lambda: second not in admin.list_topics(timeout=10).topics, "the topic to be gone")
    produce(under_test.kafka, under_test.source, [(None, value) for value in between(10, 15)])
    found = preflight(under_test)
    assert [(finding.kind, finding.lost) for finding in found] == [("topics_gone", (LostRange(second, 0, 5, None),))]
    goes_on(under_test, spark, found, f"{second}-0 from offset 5 on (the partition is gone)")
    assert under_test.values() == between(0, 15)


def test_a_topic_that_vanishes_during_a_run_ends_it_by_name(
    spark: Any, matching: tuple[StreamUnderTest, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves a batch in doubt, which the next start plans anew."""
    under_test, second = matching
    admin = AdminClient(dict(under_test.kafka))

    def vanish() -> None:
        admin.delete_topics([second])[second].result(30)
        wait_for(lambda: second not in admin.list_topics(timeout=10).topics, "the topic to be gone")
        produce(under_test.kafka, under_test.source, [(None, value) for value in between(15, 20)])

    produce(under_test.kafka, under_test.source, [(None, value) for value in between(10, 15)])
    fault = Fault(monkeypatch, 1, vanish, after=True)
    under_test.settings = {**under_test.settings, "drain": False}
    refused(under_test, under_test.drive(spark, copy), f"{second}-0 from offset 5 on (the partition is gone)")
    assert fault.hits == 1
    under_test.settings = {**under_test.settings, "drain": True}
    goes_on(under_test, spark, preflight(under_test), f"{second}-0 from offset 5 on")
    assert under_test.values() == between(0, 20)
