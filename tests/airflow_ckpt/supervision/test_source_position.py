"""How far a stream has read: what waits is counted from the committed offsets, and no answer of Kafka is not zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.streams.observation import PartitionLag, SourcePosition
from airflow_ckpt.streams.preflight import check
from airflow_ckpt.supervision import observing, source_position, start_conditions
from airflow_ckpt.supervision.observing import look_before_start
from airflow_ckpt.supervision.source_position import with_source_ends
from airflow_ckpt.supervision.start_conditions import read_start_conditions
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.protocol.checkpoint.checkpoint_reader import CheckpointReport
from ckpt_stream.protocol.topic_ends import TopicEnds
from tests.airflow_ckpt.supervision.samples import T0, a_checkpoint, a_stream, at

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "unreachable.invalid:1"}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[str, TopicEnds | None]:
    """What Kafka says of the source topics."""
    known: dict[str, TopicEnds | None] = {}
    monkeypatch.setattr(source_position, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(source_position, "source_ends", lambda admin, topics, pattern: known)
    return known


def read_lag(checkpoint: CheckpointReport, *, ages: bool = False) -> tuple[PartitionLag, ...]:
    access = StreamAccess(a_stream(), None, KAFKA, None)  # type: ignore[arg-type]
    return with_source_ends(access, SourcePosition(checkpoint), T0, ages=ages).lag or ()


def lag(**committed: int) -> list[int | None]:
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {p.removeprefix("p"): o for p, o in committed.items()}})
    return [p.records for p in read_lag(checkpoint)]


def test_what_waits_is_the_stable_end_less_what_was_committed(topic: dict[str, TopicEnds | None]) -> None:
    topic["orders_in"] = TopicEnds({0: 0, 1: 0}, {0: 100, 1: 50}, {0: 120, 1: 50})
    assert lag(p0=90, p1=50) == [10, 0]


def test_a_partition_that_was_never_read_has_an_unknown_lag_unless_it_is_empty(
    topic: dict[str, TopicEnds | None],
) -> None:
    topic["orders_in"] = TopicEnds({0: 0, 1: 30, 2: 7}, {0: 100, 1: 50, 2: 7}, {0: 100, 1: 50, 2: 7})
    assert lag(p0=90) == [10, None, 0]


def test_a_commit_beyond_an_older_answer_of_kafka_is_no_negative_lag(topic: dict[str, TopicEnds | None]) -> None:
    topic["orders_in"] = TopicEnds({0: 0}, {0: 100}, {0: 100})
    assert lag(p0=105) == [0]


def test_a_topic_that_is_gone_has_no_partitions(topic: dict[str, TopicEnds | None]) -> None:
    topic["orders_in"] = None
    assert lag(p0=90) == []


def test_the_age_is_that_of_the_oldest_waiting_record(
    topic: dict[str, TopicEnds | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic["orders_in"] = TopicEnds({0: 0, 1: 0, 2: 0}, {0: 100, 1: 50, 2: 9}, {0: 100, 1: 50, 2: 9})
    monkeypatch.setattr(source_position, "waiting_since", lambda kafka, where: {("orders_in", 0): at(-42).timestamp()})
    checkpoint = a_checkpoint(committed_offsets={"orders_in": {"0": 90, "1": 50, "2": 3}})
    found = read_lag(checkpoint, ages=True)
    assert [p.seconds for p in found] == [42.0, 0.0, None]


def test_where_it_is_unknown_how_much_waits_the_age_is_unknown_too(
    topic: dict[str, TopicEnds | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch is in doubt: what it reads is known, and nothing is committed."""
    topic["orders_in"] = TopicEnds({0: 0}, {0: 100}, {0: 100})
    asked: list[Any] = []

    def waiting_since(kafka: Any, where: Any) -> dict[tuple[str, int], float]:
        asked.append(where)
        return {("orders_in", 0): at(-42).timestamp()}

    monkeypatch.setattr(source_position, "waiting_since", waiting_since)
    checkpoint = a_checkpoint(committed=None, in_doubt=0, start={"orders_in": {"0": 0}})
    assert [(p.records, p.seconds) for p in read_lag(checkpoint, ages=True)] == [(None, None)]
    assert asked == [{("orders_in", 0): 0}], "preflight needs the age, to compare it with the retention"


def test_kafka_that_does_not_answer_is_said_and_not_taken_for_no_lag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: Any) -> None:
        raise KafkaUnreachable("BrokersDown")

    monkeypatch.setattr(source_position, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(source_position, "source_ends", no_answer)
    seen = observing.observe(StreamAccess(a_stream(), FsspecFiles(str(tmp_path)), KAFKA, None))
    assert (seen.position.lag, seen.position.kafka_error) == (None, "BrokersDown")


def test_preflight_without_an_answer_of_kafka_is_a_finding_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: Any) -> None:
        raise KafkaUnreachable("BrokersDown")

    monkeypatch.setattr(source_position, "shared_admin", no_answer)
    access = StreamAccess(a_stream(), FsspecFiles(str(tmp_path)), KAFKA, None)
    found = read_start_conditions(access, look_before_start(access))
    assert [f.kind for f in check(a_stream(), found)] == ["kafka_unreachable"]


def test_kafka_that_goes_away_after_the_look_is_a_finding_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: dict[str, TopicEnds | None]
) -> None:
    def no_answer(*_: Any) -> None:
        raise KafkaUnreachable("BrokersDown")

    topic["orders_in"] = TopicEnds({0: 0}, {0: 0}, {0: 0})
    access = StreamAccess(a_stream(), FsspecFiles(str(tmp_path)), KAFKA, None)
    look = look_before_start(access)
    assert look.seen.position.topics is not None
    monkeypatch.setattr(start_conditions, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(start_conditions, "with_ages", lambda kafka, position: position)
    monkeypatch.setattr(start_conditions, "partitions_of", no_answer)
    (finding,) = check(a_stream(), read_start_conditions(access, look))
    assert (finding.kind, finding.unsafe, finding.temporary) == ("kafka_unreachable", True, True)


def denied(*_: Any, **__: Any) -> None:
    raise PermissionError("denied")


def test_a_checkpoint_that_cannot_be_read_is_no_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_position, "read_checkpoint", denied)
    with pytest.raises(PermissionError, match="denied"):
        observing.look(StreamAccess(a_stream(), FsspecFiles(str(tmp_path)), None, None))


def test_preflight_without_an_answer_of_the_checkpoints_storage_is_a_finding_and_no_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: dict[str, TopicEnds | None]
) -> None:
    monkeypatch.setattr(source_position, "read_checkpoint", denied)
    monkeypatch.setattr(start_conditions, "shared_admin", lambda kafka: None)
    monkeypatch.setattr(start_conditions, "with_ages", lambda kafka, position: position)
    monkeypatch.setattr(start_conditions, "partitions_of", lambda admin, topic: 1)
    monkeypatch.setattr(start_conditions, "broker_settings", lambda admin: {})
    topic["orders_in"] = None
    access = StreamAccess(a_stream(), FsspecFiles(str(tmp_path)), KAFKA, None)
    finding, *others = check(a_stream(), read_start_conditions(access, look_before_start(access)))
    assert (finding.kind, finding.unsafe, finding.temporary) == ("storage_unreachable", True, True)
    assert "denied" in finding.what
    # The ledger was not compared with a checkpoint that is unknown.
    assert [other.kind for other in others] == ["topic_missing"]
