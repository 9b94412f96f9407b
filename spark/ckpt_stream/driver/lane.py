"""One lane of one batch, in a Spark task: fence, read the ledger, decide, write everything in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from ckpt_stream.driver.archive_cache import drop_archive_importers
from ckpt_stream.driver.end_of_input import LaneInput
from ckpt_stream.driver.lane_replay import read_replay
from ckpt_stream.driver.lane_result import StepTimes, lane_result, result_batch
from ckpt_stream.driver.lane_spec import LaneSettings, LaneSpec
from ckpt_stream.driver.lane_sums import LaneSums, column
from ckpt_stream.kafka.ledger_reader import open_reader, read_last
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.ledger.batch_to_write import FIRST_BATCH
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER
from ckpt_stream.protocol.ledger.decision import Action, LaneDecision, decide
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic, record_key, transactional_id


class LaneWriter:
    """The function that Spark maps over a lane's rows; it yields one row, the lane's result."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # noqa: S101 - only ever called in a Spark task
        result = result_batch(write_lane(self.spec, context.partitionId(), batches))
        drop_archive_importers()
        yield result


def write_lane(spec: LaneSpec, lane: int, batches: Iterable[Any]) -> dict[str, Any]:
    """Write one lane of the batch into the sink, unless it is already there."""
    settings = spec.settings
    rows, times, sums = LaneInput(batches), StepTimes(), LaneSums()
    where = {"batch": spec.to_write.batch, "lane": lane, "driver_pids": settings.driver_pids}
    if lane > 0:
        crashes.reach(crash_points.BETWEEN_LANES, **where)
    reader = open_reader(settings.kafka)  # it connects while the lane is fenced, and reads afterwards
    transaction = None if spec.only_compare else _fence(settings, lane)
    differs = False
    try:
        times.end("init_ms")
        crashes.reach(crash_points.AFTER_INIT, **where)
        with reader:
            last = read_last(reader, ledger_topic(settings.sink.sink_id), lane, fenced=transaction is not None)
        decision = LaneDecision(Action.PRODUCE) if settings.ignore_ledger else decide(last, lane, spec.to_write)
        times.end("ledger_ms")
        crashes.reach(crash_points.AFTER_LEDGER_READ, **where)
        if decision.action is Action.SKIP or transaction is None:
            differs = read_replay(spec, lane, rows, sums, None if spec.source_lost else decision.expected)
        else:
            _write(transaction, spec, lane, rows, sums, times, where)
    finally:
        if transaction is not None:
            transaction.close()
    return lane_result(lane, sums, times, skipped=decision.action is Action.SKIP, differs=differs)


def _fence(settings: LaneSettings, lane: int) -> Transaction:
    name = transactional_id(settings.sink.sink_id, lane)
    return Transaction(settings.kafka, name, settings.transaction_timeout_ms, settings.sink.topic)


def _write(
    transaction: Transaction,
    spec: LaneSpec,
    lane: int,
    rows: LaneInput,
    sums: LaneSums,
    times: StepTimes,
    where: Mapping[str, Any],
) -> None:
    transaction.begin()
    try:
        for batch in rows:
            produce_rows(transaction, spec, lane, batch, sums)
            if crash_points.MID_PRODUCE in crashes.armed_points:
                transaction.flush()  # so that Kafka has something to abort
            crashes.reach(crash_points.MID_PRODUCE, **where)
        rows.require_end()
        produce_ledger_record(transaction, spec, lane, sums)
        times.end("produce_ms")
        transaction.flush()
        times.end("flush_ms")
        crashes.reach(crash_points.AFTER_FLUSH, **where)
    except BaseException:
        transaction.abort()
        raise
    # The transaction handles an error of its commit: a commit that may have arrived is never aborted.
    transaction.commit(f"commit lane {lane} of batch {spec.to_write.batch} to {spec.settings.sink.topic}", where)
    times.end("commit_ms")
    crashes.reach(crash_points.AFTER_COMMIT, **where)


def produce_rows(transaction: Transaction, spec: LaneSpec, lane: int, rows: Any, sums: LaneSums) -> None:
    """Produce one Arrow record batch of a lane, and add it to the lane's sums."""
    settings, topic = spec.settings, spec.settings.sink.topic
    next_number = {False: sums.records, True: sums.dead_letters}
    sums.add(rows)
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    extras = [column(rows, name) for name in ("headers", "partition", "dead_letter")]
    if not settings.audit and all(extra is None for extra in extras):
        _produce_plain(transaction, topic, keys, values)
        return
    headers, partitions, dead = ([None] * len(keys) if extra is None else extra.to_pylist() for extra in extras)
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        record: dict[str, Any] = {"key": key, "value": value}
        pairs = [(header["key"], header["value"]) for header in headers[i] or ()]
        if settings.audit:
            is_dead = bool(dead[i])
            pairs.append((AUDIT_HEADER, f"{spec.to_write.batch}/{lane}/{next_number[is_dead]}".encode()))
            next_number[is_dead] += 1
        if pairs:
            record["headers"] = pairs
        if dead[i]:
            transaction.produce(settings.dead_letter_topic or "", **record)
            continue
        if partitions[i] is not None:
            record["partition"] = partitions[i]
        transaction.produce(topic, **record)


def _produce_plain(transaction: Transaction, topic: str, keys: list[bytes | None], values: list[bytes | None]) -> None:
    """The fast path for records of key and value alone: about a microsecond per record."""
    from confluent_kafka import KafkaException

    produce = transaction.producer.produce
    for key, value in zip(keys, values, strict=True):
        try:
            produce(topic, value, key)
        except (BufferError, KafkaException):
            transaction.produce(topic, key=key, value=value)


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
