"""Dead letters on a real broker and a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

import ip_count
from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import CLEAN, UNKNOWN
from airflow_ckpt.verify.verification import verify
from tests.integration.test_applications import MALFORMED, log_line
from tests.support.kafka_io import produce
from tests.support.streams import StreamUnderTest
from tests.support.written_sink import kinds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Make = Callable[..., StreamUnderTest]

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def subject_of(stream: StreamUnderTest) -> Subject:
    files = FsspecFiles(str(stream.checkpoint))
    return Subject(stream.name, stream.kafka, stream.name, stream.sink, stream.name, files)


def test_dead_letters_are_verified_with_the_sink(spark: Any, stream: Make, topics: Callable[..., str]) -> None:
    dead = topics("dead", 2)
    under_test = stream("ip_count", malformed="dead_letter", dead_letter_topic=dead, output_mode="update")
    under_test.feed(log_line(START, "10.0.0.1", 0), *MALFORMED)
    assert under_test.drive(spark, ip_count.transform)[0] == 0
    verdict = verify(subject_of(under_test))
    assert (verdict.verdict, verdict.dead_letters) == (CLEAN, len(MALFORMED)), verdict.findings
    produce(under_test.kafka, dead, [("k", "of another stream")])
    shared = verify(subject_of(under_test))
    assert (shared.verdict, kinds(shared)) == (UNKNOWN, {"dead_letter_surplus"})
    assert verify(subject_of(under_test), dead_letters=False).verdict == CLEAN
    admin = AdminClient(dict(under_test.kafka))
    for future in admin.delete_records([TopicPartition(dead, p, -1) for p in (0, 1)]).values():
        future.result(30)
    assert kinds(verify(subject_of(under_test))) == {"sink_truncated"}
