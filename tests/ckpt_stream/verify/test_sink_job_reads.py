"""What the Spark job reads of a topic, and as which user; what Spark would compute is only noted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ckpt_stream.protocol.settings.input_names import SECRETS_PROPERTY
from ckpt_stream.protocol.verification.scan_result import Boundaries, ExpectedLanes, Scan
from ckpt_stream.verify import sink_job
from ckpt_stream.verify.sink_job import ScanJob, TopicRange, read_topic, run_job, scan_topic
from tests.support.fake_spark import FakeSpark

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "b"}


def topic_range(**changes: Any) -> TopicRange:
    about: dict[str, Any] = {"start": {0: 3, 1: 7}, "end": {0: 9, 1: 7, 2: 5}, "boundaries": Boundaries({}, [2])}
    return TopicRange("orders-out", **{**about, **changes})


def options(**changes: Any) -> dict[str, str]:
    spark: Any = FakeSpark()
    read_topic(spark, KAFKA, topic_range(**changes))
    return dict(spark.batches[0].options)


def test_a_topic_is_read_from_start_to_end_of_each_partition_in_which_the_range_has_records() -> None:
    """A partition that is not read cannot fail because of records that are gone and were never part of the range."""
    spark: Any = FakeSpark()
    read_topic(spark, KAFKA, topic_range())
    assert spark.batches[0].ranges == {"orders-out": {0: (3, 9), 2: (0, 5)}}


def test_readers_see_committed_records_and_fail_on_lost_ones() -> None:
    found = options()
    assert (found["kafka.isolation.level"], found["failOnDataLoss"]) == ("read_committed", "true")


@pytest.mark.parametrize(
    ("formats", "expected", "headers"),
    [([1], None, "false"), ([1], ExpectedLanes([]), "true"), ([1, 2], None, "true"), ([2], None, "true")],
)
def test_headers_are_read_if_they_name_the_record_or_are_a_part_of_its_hash(
    formats: list[int], expected: ExpectedLanes | None, headers: str
) -> None:
    assert options(boundaries=Boundaries({}, formats), expected=expected)["includeHeaders"] == headers


@pytest.mark.parametrize(("count_aborted", "uncommitted"), [(False, None), (True, 12)])
def test_aborted_copies_are_counted_by_a_second_read_without_isolation(
    monkeypatch: pytest.MonkeyPatch, count_aborted: bool, uncommitted: int | None
) -> None:
    records = {"read_committed": 9, "read_uncommitted": 12}

    def read(*_: Any, isolation: str = "read_committed") -> Any:
        return SimpleNamespace(count=lambda: records[isolation])

    collected = SimpleNamespace(mapInArrow=lambda *_: SimpleNamespace(collect=list))
    monkeypatch.setattr(sink_job, "read_topic", read)
    monkeypatch.setattr(sink_job, "_named", lambda *_: collected)
    assert scan_topic(FakeSpark(), KAFKA, topic_range(count_aborted=count_aborted)).uncommitted == uncommitted  # type: ignore[arg-type]


def test_a_job_reads_with_the_secrets_that_were_passed_apart_from_its_document(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    spark: Any = FakeSpark()
    spark.conf.get = {SECRETS_PROPERTY: '{"sasl.password": "HUSH"}'}.get
    given: list[Any] = []
    monkeypatch.setattr(sink_job, "scan_topic", lambda spark, kafka, _: (given.append(kafka), Scan())[-1])
    monkeypatch.setattr(sink_job, "write_result", lambda *_: None)
    run_job(spark, ScanJob("scan", KAFKA, "r.json", (topic_range(),)))
    assert given == [{**KAFKA, "sasl.password": "HUSH"}]
