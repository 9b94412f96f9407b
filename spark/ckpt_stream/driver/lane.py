"""One lane of one batch, in a Spark task: fence, read the ledger, decide, write everything in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ckpt_stream.driver.archive_cache import drop_archive_importers
from ckpt_stream.driver.end_of_input import LaneInput
from ckpt_stream.driver.lane_ledger import produce_ledger_record
from ckpt_stream.driver.lane_records import produce_rows
from ckpt_stream.driver.lane_replay import read_replay
from ckpt_stream.driver.lane_result import StepTimes, lane_result, result_batch
from ckpt_stream.driver.lane_spec import LaneSettings, LaneSpec
from ckpt_stream.driver.lane_sums import LaneSums
from ckpt_stream.kafka.ledger_reader import open_reader, read_last
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.machine import crashes
from ckpt_stream.protocol import crash_points
from ckpt_stream.protocol.ledger.decision import Action, LaneDecision, decide
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic, transactional_id


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
    """Write one lane of the batch into the sink, or find that it is there already."""
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
