"""The ledger record of a lane, which its transaction writes last."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.driver.lane_sums import LaneSums
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.protocol.ledger.batch_to_write import FIRST_BATCH
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic, record_key


def produce_ledger_record(transaction: Transaction, spec: LaneSpec, lane: int, sums: LaneSums) -> None:
    """Produce the lane's ledger record, and delete the one that is older than the ledger's history."""
    topic = ledger_topic(spec.settings.sink.sink_id)
    outdated = spec.to_write.batch - spec.settings.history
    if outdated >= 0:
        transaction.produce(topic, key=record_key(lane, outdated), value=None, partition=lane)
    record = ledger_record(spec, lane, sums)
    transaction.produce(topic, key=record.key, value=record.to_json(), partition=lane)


def ledger_record(spec: LaneSpec, lane: int, sums: LaneSums) -> LedgerRecord:
    """What the ledger keeps of a lane."""
    settings, sink, to_write = spec.settings, spec.settings.sink, spec.to_write
    # Format 1 has no field for the sums by partition and for the entry of the offset log.
    after_format_1 = spec.ledger_format > 1
    return LedgerRecord(
        sink_id=sink.sink_id,
        query_id=to_write.query_id,
        run_id=settings.run_id,
        lane=lane,
        lanes=sink.lanes,
        batch=to_write.batch,
        digest=to_write.digest,
        start=spec.start,
        end=spec.end,
        records=sums.records,
        checksum=sums.checksum,
        topic=sink.topic,
        topic_id=sink.topic_id,
        application=settings.application,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        sink_start=spec.sink_start,
        audited=settings.audit,
        dead_letter_topic=settings.dead_letter_topic,
        dead_letters=sums.dead_letters,
        dead_letter_checksum=sums.dead_letter_checksum,
        placed=sums.placed if after_format_1 else None,
        offsets=spec.offsets if lane == 0 and after_format_1 else None,
        adopted=asdict(to_write.adopted) if to_write.adopted is not None and to_write.batch == FIRST_BATCH else None,
        attempt=spec.attempt or settings.run_id,
        format=spec.ledger_format,
    )
