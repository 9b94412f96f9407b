"""Fences the former writers of all lanes of a ledger, reads the last record of each lane, and anchors lanes at a batch."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from ckpt_stream.errors import Fenced
from ckpt_stream.kafka.ledger_reader import open_reader, read_last
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.protocol.ledger.batch_to_write import BatchToWrite, SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, ledger_topic, transactional_id
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.record_files import now

#: How many lanes are fenced at once; each needs a client for a short time.
FENCES_AT_ONCE = 8


def fence_lanes(kafka: Mapping[str, Any], sink: SinkIdentity, lanes: int, timeout_ms: int) -> None:
    """Fence the former writers of all lanes, also of lanes that the stream no longer has. This aborts their open transactions."""

    def fence(lane: int) -> None:
        Transaction(kafka, transactional_id(sink.sink_id, lane), timeout_ms, sink.topic).close()

    with ThreadPoolExecutor(FENCES_AT_ONCE) as pool:
        list(pool.map(fence, range(lanes)))


def read_ledger_ends(kafka: Mapping[str, Any], topic: str, partitions: int) -> list[LedgerRecord | None]:
    """The last record of every lane that the ledger topic has a partition for."""
    if partitions == 0:
        return []
    with open_reader(kafka) as reader:
        return [read_last(reader, topic, lane, fenced=False) for lane in range(partitions)]


def write_anchors(
    kafka: Mapping[str, Any],
    at: BatchToWrite,
    end: Offsets,
    last_seen: Mapping[int, LedgerRecord | None],
    *,
    run_id: str,
    application: str,
    timeout_ms: int,
) -> None:
    """Anchor lanes at a batch, one after the other: the next batch then finds its predecessor and the number of lanes.

    ``last_seen``: the lanes in the order in which to anchor them, each with the last record that the caller has read. Each lane
    is fenced once more by a separate transaction and read again: a former driver that is still alive may have committed in
    between, and a later attempt of it finds the anchor.
    """
    sink, topic = at.sink, ledger_topic(at.sink.sink_id)
    for lane, seen in last_seen.items():
        with closing(Transaction(kafka, transactional_id(sink.sink_id, lane), timeout_ms, sink.topic)) as transaction:
            with open_reader(kafka) as reader:
                last = read_last(reader, topic, lane)
            if last != seen:
                raise Fenced(
                    f"Lane {lane} of {topic} was written to before it could be anchored at batch {at.batch}: a former driver "
                    "is still alive. Nothing is lost: the next start compares ledger and checkpoint again."
                )
            record = LedgerRecord(
                sink_id=sink.sink_id,
                query_id=at.query_id,
                run_id=run_id,
                lane=lane,
                lanes=sink.lanes,
                batch=at.batch,
                digest=at.digest,
                start=end,
                end=end,
                records=0,
                checksum=0,
                topic=sink.topic,
                topic_id=sink.topic_id,
                application=application,
                time=now(),
                kind=ANCHOR,
            )
            transaction.begin()
            try:
                transaction.produce(topic, key=record.key, value=record.to_json(), partition=lane)
                transaction.flush()
            except BaseException:
                transaction.abort()
                raise
            transaction.commit(f"anchor lane {lane} of {topic}", {"batch": at.batch, "lane": lane})
