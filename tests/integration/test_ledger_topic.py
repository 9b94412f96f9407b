"""The ledger's topic on a real broker: made to last, refused where it would forget, and read right once it is compacted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ckpt_stream.errors import UnsafeLedger
from ckpt_stream.kafka.ledger_comparison import compare_ledger
from ckpt_stream.kafka.ledger_creation import ensure_ledger
from ckpt_stream.kafka.ledger_reader import LaneReader, open_reader, read_lane, read_last
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.ledger.batch_to_write import SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic, record_key
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, Resume
from tests.ckpt_stream.moving import MovingCheckpoint
from tests.ckpt_stream.samples import held
from tests.support.kafka_io import read_all
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration

HISTORY = 5


@pytest.fixture
def asked(kafka: Any) -> Iterator[Topics]:
    with closing(Topics(kafka.client_config())) as topics:
        yield topics


def configure(admin: AdminClient, topic: str, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_new_ledger_is_compacted_soon_and_never_deleted_from(asked: Topics, topics: Callable[..., str]) -> None:
    sink = asked.get(topics("sink"), "sink")
    ledger = ensure_ledger(asked, ledger_topic(sink.name), 2, sink)
    (found,) = asked.durability(ledger)
    assert found.settings is not None
    assert found.settings["cleanup.policy"] == "compact"
    assert found.settings["unclean.leader.election.enable"] == "false"
    # The broker's own are a week and a gigabyte.
    assert int(found.settings["segment.ms"]) <= 3_600_000
    assert int(found.settings["segment.bytes"]) <= 16 * 1024 * 1024


@pytest.mark.parametrize(
    "unsafe", [{"cleanup.policy": "delete"}, {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}]
)
def test_a_ledger_topic_made_by_hand_is_refused_until_the_command_in_the_error_was_run(
    kafka: Any, asked: Topics, admin: AdminClient, topics: Callable[..., str], unsafe: dict[str, str]
) -> None:
    sink = asked.get(topics("sink"), "sink")
    name = ledger_topic(sink.name)
    admin.create_topics([NewTopic(name, 1, 1, config=unsafe)])[name].result(30)
    wait_for(lambda: asked.find(name), "the ledger topic")
    identity = SinkIdentity(sink.name, 1, sink.name, sink.id)

    def start() -> Reconciliation:
        return compare_ledger(MovingCheckpoint([]), asked, kafka.client_config(), identity, adopt_ledger=False)

    with pytest.raises(UnsafeLedger) as refused:
        start()
    (command,) = re.findall(r"`kafka-configs.sh .* --entity-name (\S+) --add-config (\S+)`", refused.value.helps)
    assert command[0] == name
    changes = dict(change.split("=") for change in command[1].split(","))
    configure(admin, name, **changes)
    assert start() == Reconciliation(Resume.FRESH)


class Lane:
    """A lane as the protocol writes it: a batch and the tombstone of an old one in each transaction."""

    def __init__(self, kafka: dict[str, str], topic: str) -> None:
        self.topic = topic
        self.producer = Producer({**kafka, "transactional.id": f"{topic}-0"})
        self.producer.init_transactions(30)
        self.written: list[LedgerRecord] = []

    def attempt(self, *, commit: bool) -> None:
        record = held(len(self.written), sink_id=self.topic)
        self.producer.begin_transaction()
        if record.batch >= HISTORY:
            self.producer.produce(self.topic, None, record_key(0, record.batch - HISTORY), partition=0)
        self.producer.produce(self.topic, record.to_json(), record.key, partition=0)
        self.producer.flush(30)
        if commit:
            self.producer.commit_transaction(30)
            self.written.append(record)
        else:
            self.producer.abort_transaction(30)


def test_a_ledger_whose_segments_were_rolled_and_compacted_reads_as_before(
    kafka: Any, asked: Topics, admin: AdminClient, topics: Callable[..., str]
) -> None:
    config = kafka.client_config()
    sink = asked.get(topics("sink"), "sink")
    name = ledger_topic(sink.name)
    ensure_ledger(asked, name, 1, sink)
    # What takes an hour otherwise.
    configure(
        admin,
        name,
        segment_ms="1",
        min_cleanable_dirty_ratio="0.001",
        delete_retention_ms="1",
        file_delete_delay_ms="1",
    )
    lane = Lane(config, name)
    log = LaneReader(name, 0)
    old = {record_key(0, batch) for batch in range(20)}

    def compacted() -> bool:
        """One more batch, and whether old ones are gone with their tombstones."""
        lane.attempt(commit=False)
        lane.attempt(commit=True)
        with open_reader(config) as reader:
            log.read(reader)
        return old.isdisjoint(r.key for r in read_all(config, name, isolation="read_uncommitted"))

    for _ in range(25):
        lane.attempt(commit=True)
    wait_for(compacted, "the broker to compact the ledger")
    lane.attempt(commit=False)

    offsets = [r.offset for r in read_all(config, name, isolation="read_uncommitted")]
    assert len(offsets) < offsets[-1] - offsets[0], "there are no holes"
    live = lane.written[-HISTORY:]
    with open_reader(config) as reader:
        assert read_last(reader, name, 0) == live[-1]
        assert read_lane(reader, name, 0)[-HISTORY:] == live
        assert log.read(reader)[-HISTORY:] == live
        assert {r.batch for r in read_lane(reader, name, 0)}.isdisjoint(range(20))


def test_what_was_aborted_just_before_an_open_transaction_is_read_past(
    kafka: Any, asked: Topics, topics: Callable[..., str]
) -> None:
    """Its marker lies behind what readers may see: only the reader's position shows that nothing follows."""
    config = kafka.client_config()
    sink = asked.get(topics("sink"), "sink")
    name = ledger_topic(sink.name)
    ensure_ledger(asked, name, 1, sink)
    producers = [Producer({**config, "transactional.id": f"{name}-{n}"}) for n in range(2)]
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(name, held(0).to_json(), held(0).key, partition=0)
        producer.flush(30)
    aborted, still_open = producers
    aborted.abort_transaction(30)
    with open_reader(config) as reader:
        assert read_last(reader, name, 0, seconds=5, fenced=False) is None
    still_open.commit_transaction(30)
    with open_reader(config) as reader:
        assert read_last(reader, name, 0, seconds=5) == held(0)
