"""One lane of one batch, inside a Spark task: fence, read the ledger, decide, write everything in one transaction."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ckpt_stream import crash
from ckpt_stream.archives import forget_archives
from ckpt_stream.checksum import AUDIT_HEADER, add, partition_weights
from ckpt_stream.decision import FIRST_BATCH, Action, Decision, Intent, decide
from ckpt_stream.end_of_input import LaneInput
from ckpt_stream.errors import ReplayDiffers
from ckpt_stream.ledger import FORMAT, LedgerRecord, ledger_topic, record_key, transactional_id
from ckpt_stream.ledger_reader import open_reader, read_last
from ckpt_stream.transaction import Transaction

STEPS = ("init_ms", "ledger_ms", "produce_ms", "flush_ms", "commit_ms")
RESULT_SCHEMA = (
    "lane int, records long, bytes long, dead_letters long, checksum string, skipped boolean, differs boolean, "
    + ", ".join(f"{step} double" for step in STEPS)
)


@dataclass(frozen=True)
class LaneSpec:
    """Everything a lane must know about its batch, sent with the task."""

    intent: Intent
    kafka: Mapping[str, Any]
    run_id: str
    start: Mapping[str, Mapping[str, int]]
    end: Mapping[str, Mapping[str, int]]
    application: str
    transaction_timeout_ms: int
    history: int
    #: The text of the batch's entry in the offset log.
    offsets: str = ""
    sink_start: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: How the batch is written: as its other lanes are, where some are in the sink already.
    ledger_format: int = FORMAT
    #: A replay of a lane that is in the sink may differ from it: no lane is left to be written from that replay.
    may_differ: bool = False
    #: The run of whose rows the lanes are: an earlier one, where its lanes are in the sink and these rows are the same.
    attempt: str = ""
    #: Write nothing: only compare the lanes that are in the sink with their replay.
    only_compare: bool = False
    dead_letter_topic: str | None = None
    audit: bool = False
    #: The source has lost some of the batch's records, and a user has accepted that: lanes that are in the sink hold more.
    source_lost: bool = False
    #: For crash points only.
    driver_pids: tuple[int, ...] = ()
    #: Test only: without the ledger's decision a replayed batch is written again.
    ignore_ledger: bool = False


class LaneWriter:
    """The function that Spark maps over a lane's rows. Yields one row: what was done."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None  # noqa: S101 - only ever called in a Spark task
        row = write_lane(self.spec, context.partitionId(), batches)
        done = pa.RecordBatch.from_pylist([row], schema=_result_schema(pa))
        forget_archives()
        yield done


def write_lane(spec: LaneSpec, lane: int, batches: Iterable[Any]) -> dict[str, Any]:
    """Bring one lane of the batch into the sink, or find that it is there already."""
    batch = spec.intent.batch
    rows, clock, tally = LaneInput(batches), _Clock(), Tally()
    where = {"batch": batch, "lane": lane, "driver_pids": spec.driver_pids}
    if lane > 0:
        crash.reach(crash.BETWEEN_LANES, **where)
    reader = open_reader(spec.kafka)  # connects while the lane is fenced; what it reads, it reads after that
    transaction = None if spec.only_compare else _fence(spec, lane)
    differs = False
    try:
        clock.lap("init_ms")
        crash.reach(crash.AFTER_INIT, **where)
        with reader:
            last = read_last(reader, ledger_topic(spec.intent.sink_id), lane, fenced=transaction is not None)
        decision = Decision(Action.PRODUCE) if spec.ignore_ledger else decide(last, lane, spec.intent)
        clock.lap("ledger_ms")
        crash.reach(crash.AFTER_LEDGER_READ, **where)
        if decision.action is Action.SKIP or transaction is None:
            differs = _read_through(spec, lane, rows, tally, None if spec.source_lost else decision.expected)
        else:
            _write(transaction, spec, lane, rows, tally, clock, where)
    finally:
        if transaction is not None:
            transaction.close()
    return {
        "lane": lane,
        "records": tally.records,
        "bytes": tally.bytes,
        "dead_letters": tally.dead_letters,
        "checksum": str(tally.checksum),
        "skipped": decision.action is Action.SKIP,
        "differs": differs,
        **clock.laps,
    }


def _fence(spec: LaneSpec, lane: int) -> Transaction:
    name = transactional_id(spec.intent.sink_id, lane)
    return Transaction(spec.kafka, name, spec.transaction_timeout_ms, spec.intent.topic)


def _read_through(spec: LaneSpec, lane: int, rows: LaneInput, tally: Tally, expected: LedgerRecord | None) -> bool:
    """Read a lane that is not written all the same: only if its rows add up to what is in the sink did the batch replay.

    Whether they do not; raises if that may not be.
    """
    for batch in rows:
        tally.count(batch)
    rows.require_end()
    if expected is None:
        return False
    # A lane that an older version wrote beside ours was counted in another way, and so cannot be compared.
    same = expected.format == spec.ledger_format and tally.sums(expected.placed is not None) == (
        expected.records,
        expected.checksum,
        expected.placed,
        expected.dead_letters,
        expected.dead_letter_checksum,
    )
    if not same and not spec.may_differ:
        raise _replay_differs(spec.intent, lane, tally, expected)
    return not same


def _replay_differs(intent: Intent, lane: int, tally: Tally, expected: LedgerRecord) -> ReplayDiffers:
    return ReplayDiffers(
        f"Lane {lane} of batch {intent.batch} is in the sink with {expected.records} record(s) and checksum "
        f"{expected.checksum:016x} (ledger format {expected.format}), its replay gives {tally.records} and "
        f"{tally.checksum:016x}.",
        "The batch does not replay identically (a transform that depends on time, chance or outside data, changed code, or "
        "changed source data). What another attempt left unwritten, or keeps as state, does not fit what is in the sink: "
        "records would be lost or doubled.",
        "run the version of the application that wrote the batch until it is committed, then make the transform a function "
        f"of its input alone; or accept the loss with `airflow-ckpt ledger accept-replay {intent.sink_id} --checkpoint ...`, "
        "which lets the stream go on with the new replay.",
    )


def _write(
    transaction: Transaction,
    spec: LaneSpec,
    lane: int,
    rows: LaneInput,
    tally: Tally,
    clock: _Clock,
    where: Mapping[str, Any],
) -> None:
    transaction.begin()
    try:
        for batch in rows:
            _produce(transaction, spec, lane, batch, tally)
            if crash.MID_PRODUCE in crash.armed_points:
                transaction.flush()  # so that there is something in Kafka to be aborted
            crash.reach(crash.MID_PRODUCE, **where)
        rows.require_end()
        _produce_ledger(transaction, spec, lane, tally)
        clock.lap("produce_ms")
        transaction.flush()
        clock.lap("flush_ms")
        crash.reach(crash.AFTER_FLUSH, **where)
    except BaseException:
        transaction.abort()
        raise
    transaction.commit(f"commit lane {lane} of batch {spec.intent.batch} to {spec.intent.topic}", where)
    clock.lap("commit_ms")
    crash.reach(crash.AFTER_COMMIT, **where)


def _produce(transaction: Transaction, spec: LaneSpec, lane: int, rows: Any, tally: Tally) -> None:
    place = {False: tally.records, True: tally.dead_letters}
    tally.count(rows)
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    extras = [_column(rows, name) for name in ("headers", "partition", "dead_letter")]
    if not spec.audit and all(column is None for column in extras):
        _produce_plain(transaction, spec.intent.topic, keys, values)
        return
    headers, partitions, dead = ([None] * len(keys) if c is None else c.to_pylist() for c in extras)
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        record: dict[str, Any] = {"key": key, "value": value}
        pairs = [(header["key"], header["value"]) for header in headers[i] or ()]
        if spec.audit:
            is_dead = bool(dead[i])
            pairs.append((AUDIT_HEADER, f"{spec.intent.batch}/{lane}/{place[is_dead]}".encode()))
            place[is_dead] += 1
        if pairs:
            record["headers"] = pairs
        if dead[i]:
            transaction.produce(spec.dead_letter_topic or "", **record)
            continue
        if partitions[i] is not None:
            record["partition"] = partitions[i]
        transaction.produce(spec.intent.topic, **record)


def _produce_plain(transaction: Transaction, topic: str, keys: list[bytes | None], values: list[bytes | None]) -> None:
    """The hot loop: about a microsecond per record."""
    from confluent_kafka import KafkaException

    produce = transaction.producer.produce
    for key, value in zip(keys, values, strict=True):
        try:
            produce(topic, value, key)
        except (BufferError, KafkaException):
            transaction.produce(topic, key=key, value=value)


def _produce_ledger(transaction: Transaction, spec: LaneSpec, lane: int, tally: Tally) -> None:
    intent = spec.intent
    topic = ledger_topic(intent.sink_id)
    too_old = intent.batch - spec.history
    if too_old >= 0:
        transaction.produce(topic, key=record_key(lane, too_old), value=None, partition=lane)
    record = LedgerRecord(
        sink_id=intent.sink_id,
        query_id=intent.query_id,
        run_id=spec.run_id,
        lane=lane,
        lanes=intent.lanes,
        batch=intent.batch,
        digest=intent.digest,
        start=spec.start,
        end=spec.end,
        records=tally.records,
        checksum=tally.checksum,
        topic=intent.topic,
        topic_id=intent.topic_id,
        application=spec.application,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        sink_start=spec.sink_start,
        audited=spec.audit,
        dead_letter_topic=spec.dead_letter_topic,
        dead_letters=tally.dead_letters,
        dead_letter_checksum=tally.dead_letter_checksum,
        placed=tally.placed if spec.ledger_format > 1 else None,
        offsets=spec.offsets if lane == 0 and spec.ledger_format > 1 else None,
        adopted=asdict(intent.adopted) if intent.adopted is not None and intent.batch == FIRST_BATCH else None,
        attempt=spec.attempt or spec.run_id,
        format=spec.ledger_format,
    )
    transaction.produce(topic, key=record.key, value=record.to_json(), partition=lane)


@dataclass
class Tally:
    """What the rows of a lane add up to."""

    records: int = 0
    bytes: int = 0
    checksum: int = 0
    #: The checksum weighed by partition; None as soon as a record leaves its partition to Kafka's client.
    placed: int | None = 0
    dead_letters: int = 0
    dead_letter_checksum: int = 0

    def sums(self, with_places: bool) -> tuple[int, int, int | None, int, int]:
        placed = self.placed if with_places else None
        return self.records, self.checksum, placed, self.dead_letters, self.dead_letter_checksum

    def count(self, rows: Any) -> None:
        """Add one Arrow record batch; the hashes in it were computed by Spark."""
        import pyarrow.compute as pc

        hashes, dead, partitions = rows.column("hash"), _column(rows, "dead_letter"), _column(rows, "partition")
        if dead is not None and pc.any(dead).as_py():
            wrong = hashes.filter(dead)
            self.dead_letters += len(wrong)
            self.dead_letter_checksum = add(self.dead_letter_checksum, _sum(wrong))
            alive = pc.invert(dead)
            hashes = hashes.filter(alive)
            partitions = None if partitions is None else partitions.filter(alive)
        self.records += len(hashes)
        self.checksum = add(self.checksum, _sum(hashes))
        if partitions is None or partitions.null_count:
            self.placed = None
        elif self.placed is not None:
            self.placed = add(self.placed, _sum(hashes, partition_weights(partitions.to_numpy(zero_copy_only=False))))
        self.bytes += sum(int(pc.sum(pc.binary_length(rows.column(c))).as_py() or 0) for c in ("key", "value"))


class _Clock:
    """Milliseconds per step."""

    def __init__(self) -> None:
        self.laps = dict.fromkeys(STEPS, 0.0)
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round((now - self._last) * 1000, 3)
        self._last = now


def _column(rows: Any, name: str) -> Any | None:
    index = rows.schema.get_field_index(name)
    return rows.column(index) if index >= 0 else None


def _sum(hashes: Any, weights: Any | None = None) -> int:
    """Sum of signed 64-bit hashes; numpy wraps around, which is what a checksum modulo 2**64 wants."""
    import numpy as np

    if not len(hashes):
        return 0
    numbers = hashes.to_numpy(zero_copy_only=False).view(np.uint64)
    with np.errstate(over="ignore"):
        return int(np.add.reduce(numbers if weights is None else numbers * weights, dtype=np.uint64))


def _result_schema(pa: Any) -> Any:
    types = {
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "double": pa.float64(),
    }
    return pa.schema([(name, types[kind]) for name, kind in (f.split() for f in RESULT_SCHEMA.split(", "))])
