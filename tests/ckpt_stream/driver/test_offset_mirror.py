"""The offset mirror with a consumer and a clock of the test's own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ckpt_stream.driver.offset_mirror import COMMIT_SECONDS, MAX_PENDING, PAUSE_FACTOR, RETRY_SECONDS, OffsetMirror
from ckpt_stream.protocol.settings.stream_settings import MIRROR_MODES

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "localhost:9092", "group.id": "the connection's own", "auto.offset.reset": "latest"}


class Group:
    """Kafka's consumer group: the offsets that were committed, and the errors that Kafka answers."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.commits: list[dict[str, int]] = []
        self.attempts = 0
        self.settings: list[dict[str, Any]] = []
        self.closed = 0
        #: Called with the partitions of each attempt; raises or returns what a real consumer would.
        self.answer: Callable[[list[TopicPartition]], list[Any]] = lambda partitions: partitions

    @property
    def offset(self) -> int | None:
        """The committed offset of orders-0."""
        return self.commits[-1]["orders-0"] if self.commits else None


class FakeConsumer:
    def __init__(self, group: Group, settings: dict[str, Any]) -> None:
        self._group = group
        group.settings.append(settings)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        assert not asynchronous
        self._group.attempts += 1
        answer = self._group.answer(offsets)
        if all(p.error is None for p in answer):
            self._group.commits.append({f"{p.topic}-{p.partition}": p.offset for p in offsets})
        return answer

    def close(self) -> None:
        self._group.closed += 1


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    fake = Group()
    monkeypatch.setattr("confluent_kafka.Consumer", lambda settings: FakeConsumer(fake, settings))
    monkeypatch.setattr("ckpt_stream.driver.offset_mirror.time", SimpleNamespace(monotonic=lambda: fake.now))
    return fake


def mirror(mode: str = "on_checkpoint", period: float = 30.0) -> OffsetMirror:
    return OffsetMirror(KAFKA, "orders", mode, period)


def end(batch: int) -> dict[str, dict[str, int]]:
    return {"orders": {"0": batch * 10, "1": batch * 100}}


def batch_done(mirrored: OffsetMirror, batch: int) -> None:
    mirrored.batch_written(batch, end(batch))
    mirrored.batch_committed(batch)


def fails(text: str = "Broker: Group authorization failed", takes: float = 0.0) -> Callable[[Any], Any]:
    def answer(_: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, text))

    return answer


def test_offsets_are_committed_when_their_batch_is_committed_and_never_before(group: Group) -> None:
    mirrored = mirror()
    mirrored.batch_written(5, end(5))
    mirrored.commit_if_due()
    assert group.attempts == 0
    mirrored.batch_committed(5)
    assert group.commits == [{"orders-0": 50, "orders-1": 500}]
    assert mirrored.committed == 5


def test_the_offsets_of_each_batch_are_committed_at_once_and_only_once(group: Group) -> None:
    mirrored = mirror()
    for batch in range(3):
        batch_done(mirrored, batch)
        mirrored.commit_if_due()
    assert [commit["orders-0"] for commit in group.commits] == [0, 10, 20]


def test_the_offsets_of_a_batch_that_is_not_committed_are_not_committed_at_the_end_either(group: Group) -> None:
    mirrored = mirror()
    mirrored.batch_written(5, end(5))
    mirrored.close()
    assert group.attempts == 0
    assert mirrored.committed is None


def test_a_later_batch_covers_earlier_ones(group: Group) -> None:
    mirrored = mirror()
    for batch in (4, 5, 6):
        mirrored.batch_written(batch, end(batch))
    mirrored.batch_committed(5)
    assert group.offset == 50
    mirrored.batch_committed(6)
    assert group.offset == 60


def test_pending_batches_are_bounded_and_the_oldest_are_dropped(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = mirror()
    for batch in range(MAX_PENDING + 5):
        mirrored.batch_written(batch, end(batch))
    assert len(mirrored._pending) == MAX_PENDING
    mirrored.batch_committed(4)
    assert group.attempts == 0
    assert [(r.levelno, r.args) for r in caplog.records] == [(logging.WARNING, (4,))]
    mirrored.batch_committed(5)
    assert group.offset == 50


def test_an_unknown_batch_is_warned_about_and_changes_nothing(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = mirror()
    mirrored.batch_written(5, end(5))
    for unknown in (4, 7):
        mirrored.batch_committed(unknown)
        assert (caplog.records[-1].levelno, caplog.records[-1].args) == (logging.WARNING, (unknown,))
    assert group.attempts == 0
    mirrored.batch_committed(5)
    assert group.offset == 50


def test_a_batch_that_is_committed_twice_is_warned_about(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = mirror()
    batch_done(mirrored, 5)
    assert not caplog.records
    mirrored.batch_committed(5)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert len(group.commits) == 1


def test_a_disabled_mirror_has_no_client(group: Group) -> None:
    mirrored = mirror("disabled")
    mirrored.begin_at(4, end(4))
    batch_done(mirrored, 5)
    mirrored.commit_if_due()
    mirrored.close()
    assert group.settings == []
    assert mirrored.committed is None


def test_a_periodic_mirror_commits_the_newest_batch_once_per_period(group: Group) -> None:
    mirrored = mirror("periodic", period=30)
    batch_done(mirrored, 0)
    assert group.offset == 0
    for batch in (1, 2):
        group.now += 10
        batch_done(mirrored, batch)
        mirrored.commit_if_due()
    assert group.offset == 0
    group.now += 9.9
    mirrored.commit_if_due()
    assert group.offset == 0
    group.now += 0.1
    mirrored.commit_if_due()
    assert group.offset == 20
    assert group.attempts == 2


def test_a_periodic_mirror_does_not_commit_the_same_offsets_twice(group: Group) -> None:
    mirrored = mirror("periodic", period=30)
    batch_done(mirrored, 5)
    group.now += 100
    mirrored.commit_if_due()
    assert group.attempts == 1


def test_at_the_end_the_newest_batch_is_mirrored_whatever_the_period(group: Group) -> None:
    mirrored = mirror("periodic", period=3600)
    batch_done(mirrored, 0)
    batch_done(mirrored, 1)
    mirrored.batch_written(2, end(2))
    mirrored.close()
    assert group.offset == 10
    assert group.closed == 1


@pytest.mark.parametrize("mode", MIRROR_MODES)
def test_a_run_without_a_batch_needs_no_client(group: Group, mode: str) -> None:
    mirror(mode).close()
    assert (group.attempts, group.closed) == (0, 0)


@pytest.mark.parametrize("mode", ["on_checkpoint", "periodic"])
def test_the_last_committed_batch_of_the_checkpoint_is_mirrored_at_the_start(group: Group, mode: str) -> None:
    mirror(mode).begin_at(4, end(4))
    assert group.offset == 40


def test_a_failed_commit_is_warned_about_and_covered_by_the_next_batch(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored = mirror()
    group.answer = fails()
    batch_done(mirrored, 5)
    assert [(r.levelno, r.args) for r in caplog.records] == [
        (logging.WARNING, (5, "orders", "Broker: Group authorization failed"))
    ]
    assert mirrored.committed is None
    group.answer = lambda partitions: partitions
    batch_done(mirrored, 6)
    assert group.offset == 60
    assert mirrored.committed == 6


def test_a_failed_commit_is_tried_again_after_a_pause_when_no_batch_comes(group: Group) -> None:
    mirrored = mirror()
    group.answer = fails()
    batch_done(mirrored, 5)
    group.answer = lambda partitions: partitions
    group.now += RETRY_SECONDS - 1
    mirrored.commit_if_due()
    assert group.commits == []
    group.now += 1
    mirrored.commit_if_due()
    assert group.offset == 50


def test_a_failed_commit_is_not_tried_again_with_every_look_of_the_watch(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored = mirror()
    group.answer = fails()
    batch_done(mirrored, 5)
    for _ in range(100):
        group.now += 0.2
        mirrored.commit_if_due()
    assert group.attempts == 1
    assert len(caplog.records) == 1


def test_commits_that_hang_and_fail_take_no_more_than_a_quarter_of_the_watchs_time(group: Group) -> None:
    mirrored = mirror()

    def hangs(_: Any) -> Any:
        group.now += COMMIT_SECONDS
        raise KafkaException(KafkaError(KafkaError._WAIT_COORD))

    group.answer = hangs
    begin = group.now
    for batch in range(200):
        batch_done(mirrored, batch)
        group.now += 1
    share = group.attempts * COMMIT_SECONDS / (group.now - begin)
    assert group.attempts > 3
    assert share <= 1 / (1 + PAUSE_FACTOR) + 0.02


def test_a_failure_at_the_very_end_does_not_raise_and_the_client_is_closed(group: Group) -> None:
    mirrored = mirror()
    group.answer = fails()
    batch_done(mirrored, 5)
    mirrored.close()
    assert group.attempts == 2
    assert group.closed == 1


def test_a_commit_that_failed_just_before_the_end_is_tried_again_at_the_end(group: Group) -> None:
    mirrored = mirror()
    group.answer = fails()
    batch_done(mirrored, 5)
    group.answer = lambda partitions: partitions
    mirrored.close()
    assert group.offset == 50


def test_an_error_of_a_single_partition_is_a_failure_too(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = mirror()
    wrong = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "no such partition")
    group.answer = lambda partitions: [
        SimpleNamespace(topic=p.topic, partition=p.partition, error=wrong if p.partition else None) for p in partitions
    ]
    batch_done(mirrored, 5)
    assert "orders-1: no such partition" in caplog.text
    assert "orders-0" not in caplog.text
    assert mirrored.committed is None


def test_settings_that_the_client_refuses_are_a_warning_and_do_not_end_the_stream(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mirrored = OffsetMirror({**KAFKA, "made.up": 1}, "orders", "on_checkpoint", 30)
    batch_done(mirrored, 5)
    mirrored.close()
    assert "made.up" in caplog.text


def test_a_batch_without_offsets_has_nothing_to_mirror(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    mirrored = mirror()
    mirrored.batch_written(5, {})
    mirrored.batch_committed(5)
    assert group.attempts == 0
    assert not caplog.records


def test_the_client_is_in_the_streams_group_and_commits_nothing_by_itself(group: Group) -> None:
    batch_done(mirror(), 5)
    (settings,) = group.settings
    assert settings["group.id"] == "orders"
    assert settings["enable.auto.commit"] is False
    assert settings["bootstrap.servers"] == "localhost:9092"


def test_a_commit_without_a_coordinator_gives_up_long_before_the_driver_counts_as_dead(group: Group) -> None:
    batch_done(mirror(), 5)
    (settings,) = group.settings
    # By default librdkafka waits for 45 s, and the watch looks at nothing else meanwhile.
    assert settings["session.timeout.ms"] == settings["socket.timeout.ms"] == 6000


def test_one_client_serves_all_commits(group: Group) -> None:
    mirrored = mirror()
    for batch in range(3):
        batch_done(mirrored, batch)
    assert len(group.settings) == 1


def test_a_real_client_takes_the_settings() -> None:
    Consumer({**mirror()._settings, "bootstrap.servers": ""}).close()
