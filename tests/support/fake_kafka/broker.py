"""The state of a Kafka cluster: topics, their logs, and the transactions that are open in them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError

from tests.support.fake_clock import FakeClock
from tests.support.fake_kafka.errors import Faults


@dataclass
class Entry:
    """One record. Its producer is known for as long as its transaction is open."""

    key: bytes | None
    value: bytes | None
    time: float = 0.0
    open_in: object | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    #: Only readers of uncommitted records see it.
    aborted: bool = False


class FakePartition:
    """A log with an entry per offset; None stands for what a reader of committed records skips."""

    def __init__(self) -> None:
        self.log: list[Entry | None] = []
        self.low = 0
        #: Where a transaction begins that a test opened, of a program that is not under test.
        self.hidden_from: int | None = None

    @property
    def high(self) -> int:
        return len(self.log)

    @property
    def stable(self) -> int:
        pending = (n for n, entry in enumerate(self.log) if entry is not None and entry.open_in is not None)
        return min(next(pending, self.high), self.high if self.hidden_from is None else self.hidden_from)

    def write(self, key: bytes | None, value: bytes | None, time: float = 0.0) -> None:
        """A record that is committed already, without a marker."""
        self.log.append(Entry(key, value, time))

    def mark(self, count: int = 1) -> None:
        """Markers, or what aborted transactions have left."""
        self.log += [None] * count

    def end(self, producer: object, *, commit: bool) -> None:
        """End the producer's transaction in this partition."""
        mine = [n for n, entry in enumerate(self.log) if entry is not None and entry.open_in is producer]
        for n in mine:
            entry = self.log[n]
            if commit and entry is not None:
                entry.open_in = None
            else:
                self.log[n] = None
        if mine:
            self.mark()

    @property
    def committed(self) -> list[Entry]:
        return [entry for entry in self.log[: self.stable] if entry is not None and not entry.aborted]


@dataclass
class FakeTopic:
    name: str
    id: str
    partitions: list[FakePartition]
    settings: dict[str, str] = field(default_factory=dict)
    #: The brokers of each partition, and those of them that are in sync.
    replicas: tuple[int, ...] = (1,)
    in_sync: tuple[int, ...] | None = None


class FakeBroker:
    """A cluster. `install` lets the code under test find the fake clients in the place of confluent-kafka's."""

    def __init__(self, brokers: int = 1) -> None:
        self.brokers = range(1, brokers + 1)
        self.broker_settings: dict[str, str] = {}
        self.topics: dict[str, FakeTopic] = {}
        self.groups: dict[str, dict[tuple[str, int], int]] = {}
        self.owners: dict[str, Any] = {}
        #: Every call of a client, in order: its name and what it was about.
        self.calls: list[tuple[str, Any]] = []
        self.clients: list[Any] = []
        self.faults = Faults()
        #: Moved by a consumer that waits for a record that does not come.
        self.clock: FakeClock | None = None
        self._ids = itertools.count(1)

    def fail(self, call: str, *faults: Any) -> None:
        """Let the next calls of this name end with these errors, one each; a function is called before its call goes on."""
        self.faults.add(call, *faults)

    def called(self, name: str, about: Any = None) -> None:
        self.calls.append((name, about))
        self.faults.raise_next(name)

    def names_of_calls(self) -> list[str]:
        return [name for name, _ in self.calls]

    def topic(
        self, name: str, partitions: int = 1, *, replicas: tuple[int, ...] | None = None, **settings: str
    ) -> FakeTopic:
        """Make a topic; ``retention_ms="1"`` stands for ``retention.ms``."""
        made = FakeTopic(
            name,
            f"{name}-id-{next(self._ids)}",
            [FakePartition() for _ in range(partitions)],
            {setting.replace("_", "."): value for setting, value in settings.items()},
            replicas or tuple(self.brokers)[:3],
        )
        self.topics[name] = made
        return made

    def partition(self, topic: str, number: int = 0) -> FakePartition:
        return self.topics[topic].partitions[number]

    def values(self, topic: str, number: int = 0) -> list[bytes | None]:
        """What readers of committed records see."""
        return [entry.value for entry in self.partition(topic, number).committed]

    def take_over(self, transactional_id: str, producer: Any) -> None:
        """Fence the former owner of a transactional id: its open transaction is aborted."""
        former = self.owners.get(transactional_id)
        if former is not None and former is not producer:
            former.fenced = True
            self.end_transaction(former, commit=False)
        self.owners[transactional_id] = producer

    def end_transaction(self, producer: Any, *, commit: bool) -> None:
        for topic in self.topics.values():
            for partition in topic.partitions:
                partition.end(producer, commit=commit)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tests.support.fake_kafka.admin import FakeAdmin
        from tests.support.fake_kafka.consumer import FakeConsumer
        from tests.support.fake_kafka.producer import FakeProducer

        def of_this_broker(client: Any) -> Any:
            def make(settings: Mapping[str, Any]) -> Any:
                made = client(self, settings)
                self.clients.append(made)
                return made

            return make

        monkeypatch.setattr("confluent_kafka.admin.AdminClient", of_this_broker(FakeAdmin))
        monkeypatch.setattr("confluent_kafka.Consumer", of_this_broker(FakeConsumer))
        monkeypatch.setattr("confluent_kafka.Producer", of_this_broker(FakeProducer))


UNKNOWN_TOPIC = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
