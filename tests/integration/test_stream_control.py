"""Status and preflight against a real broker, checkpoint and driver: idle or stalled, and what must not be resumed."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.exceptions import PreflightRefused
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.supervision.control import StreamControl
from airflow_ckpt.supervision.observing import look
from airflow_ckpt.supervision.stream_access import StreamAccess
from ckpt_stream.protocol.data_loss import LostRange
from tests.support.streams import StreamUnderTest, copy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration


def declared(under_test: StreamUnderTest, **changes: Any) -> Stream:
    return Stream(
        name=under_test.name, application="copy_topic.py", checkpoint=str(under_test.checkpoint), source=under_test.source,
        sink=under_test.sink, **changes,
    )  # fmt: skip


def control_of(under_test: StreamUnderTest, **changes: Any) -> StreamControl:
    sources = StreamAccess(declared(under_test, **changes), under_test.files, under_test.kafka, None)

    def launch(order: Any) -> Any:
        raise AssertionError("nothing may be started")

    return StreamControl(sources, launch, "a test")


def delete_until(under_test: StreamUnderTest, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(dict(under_test.kafka))
    for future in admin.delete_records([TopicPartition(under_test.source, 0, offset)]).values():
        future.result(30)


def test_a_resume_is_refused_when_unread_records_are_gone_and_names_them(
    stream: Callable[..., StreamUnderTest], spark: Any
) -> None:
    under_test = stream("copy_topic")
    under_test.feed(*[f"value-{n}" for n in range(10)])
    assert under_test.drive(spark, copy)[0] == 0
    under_test.feed(*[f"value-{n}" for n in range(10, 30)])
    assert [f.kind for f in control_of(under_test).preflight() if f.unsafe] == []

    delete_until(under_test, 15)
    with pytest.raises(PreflightRefused) as refused:
        control_of(under_test).submit()
    lost = [one for finding in refused.value.findings for one in finding.lost]  # type: ignore[attr-defined]
    assert lost == [LostRange(under_test.source, 0, 10, 15)]
    assert "5 offsets (10 to 14)" in str(refused.value)
    # The driver refuses too, unless a user has accepted the loss.
    assert under_test.drive(spark, copy)[0] == 1
    loss = {"topic": under_test.source, "partition": 0, "start": 10, "end": 15}
    assert under_test.drive(spark, copy, accepted_loss=[loss])[0] == 0
    assert len(under_test.values()) == 25


def test_preflight_names_the_time_left_before_retention_deletes_unread_records(
    stream: Callable[..., StreamUnderTest], spark: Any, admin: Any
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    under_test = stream("copy_topic")
    under_test.feed("a")
    assert under_test.drive(spark, copy)[0] == 0
    producer = Producer(under_test.kafka)
    producer.produce(under_test.source, value="b", timestamp=int((time.time() - 4.25 * 3600) * 1000))
    assert producer.flush(30) == 0
    entry = ConfigEntry("retention.ms", str(5 * 3600 * 1000), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, under_test.source, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    (finding,) = [f for f in control_of(under_test).preflight() if f.kind == "data_soon_lost"]
    assert re.search(r"in 4[345] min", finding.what)
    assert not finding.unsafe


def test_preflight_finds_what_the_driver_would_refuse(
    stream: Callable[..., StreamUnderTest], spark: Any, tmp_path: Path
) -> None:
    under_test = stream("copy_topic")
    under_test.feed("a", "b")
    assert under_test.drive(spark, copy)[0] == 0
    elsewhere = control_of(under_test).stream.but(checkpoint=str(tmp_path / "another"))
    from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles

    sources = StreamAccess(elsewhere, FsspecFiles(elsewhere.checkpoint), under_test.kafka, None)
    found = StreamControl(sources, lambda order: None, "a test").preflight()  # type: ignore[arg-type,return-value]
    assert [f.kind for f in found if f.unsafe] == ["ledger"]
    assert "ForeignLedger" in found[0].what
    timeouts = [f.kind for f in control_of(under_test, transaction_timeout="20 minutes").preflight() if f.unsafe]
    assert timeouts == ["transaction_timeout"]
    gone = control_of(under_test).stream.but(source=under_test.source, sink="there-is-no-such-topic")
    sources = StreamAccess(gone, under_test.files, under_test.kafka, None)
    missing = StreamControl(sources, lambda order: None, "a test").preflight()  # type: ignore[arg-type,return-value]
    assert "topic_missing" in [f.kind for f in missing]


@pytest.mark.faults
@pytest.mark.slow
def test_a_stream_whose_broker_is_frozen_is_stalled_and_one_without_input_is_idle(
    breakable_kafka: Any, stream: Callable[..., StreamUnderTest]
) -> None:
    under_test = stream("copy_topic", drain=False, trigger_interval=0.5, heartbeat=0.5)
    under_test.feed("a", "b", "c")
    running = under_test.start()
    try:
        sources = StreamAccess(declared(under_test, stall_after="3 s"), under_test.files, under_test.kafka, None)
        wait_for(lambda: under_test.last_batch("commits") == 0, "the first batch", seconds=120)
        idle = wait_for(lambda: (s := look(sources, lag_seconds=True)).state == "IDLE" and s, "IDLE", seconds=30)
        assert idle.lag_records == 0
        assert idle.lag_seconds == 0.0
        # Without input it is idle and never stalled, however long that lasts.
        wait_for(lambda: (look(sources).age_seconds or 0) > 4, "time to pass")
        assert look(sources).state == "IDLE"

        breakable_kafka.freeze(1)
        # Until now it was known to wait for input; from now on that is unknown.
        stalled = wait_for(lambda: (s := look(sources)).state == "STALLED" and s, "STALLED", seconds=60)
        assert "nothing was committed for" in stalled.reason
        breakable_kafka.thaw(1)
        wait_for(lambda: look(sources).state == "IDLE", "IDLE again after the thaw", seconds=60)

        # A driver that hangs while input waits.
        os.kill(int(under_test.runs()[-1].driver["jvm_pid"]), signal.SIGSTOP)
        under_test.feed("d")
        waiting = wait_for(
            lambda: (s := look(sources, lag_seconds=True)).state == "STALLED" and s, "STALLED", seconds=30
        )
        assert waiting.lag_records == 1
        assert waiting.lag_seconds is not None
        os.kill(int(under_test.runs()[-1].driver["jvm_pid"]), signal.SIGCONT)
        wait_for(lambda: under_test.values() == ["a", "b", "c", "d"], "the record", seconds=60)
    finally:
        running.kill()
    # A driver that is gone is neither: it is lost.
    lost = look(sources)
    assert (lost.state, lost.restart_may_help) == ("LOST", True)
