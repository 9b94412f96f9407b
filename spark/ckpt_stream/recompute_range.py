"""Which batches a recomputation looks at, and what bounds them in the sink, of a stream that may be running."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckpt_stream.config import AT_LEAST_ONCE, StreamConfig
from ckpt_stream.errors import StreamError
from ckpt_stream.files import ReadableFiles
from ckpt_stream.kafka_errors import patiently
from ckpt_stream.ledger import ANCHOR, LedgerRecord, ledger_topic
from ckpt_stream.ledger_reader import LaneLog, open_reader
from ckpt_stream.run_record import ADOPTION
from ckpt_stream.start_of_run import checkpoint_end

ASK_SECONDS = 30.0
#: How long a running stream is watched for a moment in which nothing is in flight.
SETTLE_SECONDS = 5.0


class CannotTell(StreamError):
    """Something keeps the comparison from being made; that is no violation, and never clean either."""

    restart_may_help = False

    def __init__(self, kind: str, what: str, helps: str) -> None:
        super().__init__(f"{what} What helps: {helps}.")
        self.kind, self.what, self.helps = kind, what, helps


@dataclass(frozen=True)
class TopicEnds:
    earliest: Mapping[int, int]
    stable: Mapping[int, int]
    high: Mapping[int, int]
    policy: str = "delete"

    @property
    def still(self) -> bool:
        """No transaction is open."""
        return all(self.stable[p] >= high for p, high in self.high.items())


@dataclass(frozen=True)
class Bounds:
    """The last batch, and the sink's offsets between which the records of all batches lie."""

    last: int
    start: Mapping[int, int]
    end: Mapping[int, int]


@dataclass(frozen=True)
class _Ledger:
    """What the ledger says of this query; it only bounds the sink, and vouches for nothing."""

    starts: Mapping[int, Mapping[int, int]]
    still: bool = True

    @property
    def newest(self) -> int:
        return max(self.starts, default=-1)


def find_bounds(
    files: ReadableFiles, config: StreamConfig, kafka: Mapping[str, Any], until: int | None = None
) -> Bounds:
    """The bounds at a moment in which nothing is in flight; else those of a batch whose successor has begun."""
    deadline = time.monotonic() + SETTLE_SECONDS
    logs: dict[int, LaneLog] = {}
    while True:
        checkpoint = checkpoint_end(files)
        if checkpoint.committed is None:
            raise CannotTell("no_batches", "The checkpoint has no committed batch yet.", "let the stream run first")
        if until is not None and until > checkpoint.committed:
            raise CannotTell(
                "not_there_yet",
                f"Batch {until} is not committed yet; the newest one is {checkpoint.committed}.",
                "recompute again when the stream has committed it",
            )
        last = checkpoint.committed if until is None else until
        sink = _sink_ends(kafka, config.sink)
        ledger = _read_ledger(kafka, config, checkpoint.query_id, logs)
        late = time.monotonic() > deadline
        if late and until is None:
            last = min(last, ledger.newest - 1)
        end = _end(last, sink, ledger)
        if end is None and last == checkpoint.committed:
            resting = checkpoint_end(files) == checkpoint
            if config.guarantee == AT_LEAST_ONCE:
                resting = resting and checkpoint.newest == checkpoint.committed
            if resting and sink.still and ledger.still:
                end = dict(sink.stable)
        if end is not None:
            return Bounds(last, _start(files, config, sink, ledger), end)
        if late:
            raise CannotTell(
                "in_flight",
                f"{config.sink} did not stand still for {SETTLE_SECONDS:.0f} s, and no batch has a known end in it.",
                "recompute when the stream is stopped, or an open transaction has ended",
            )
        time.sleep(0.05)


def _end(last: int, sink: TopicEnds, ledger: _Ledger) -> dict[int, int] | None:
    """Where the batch after the last one began bounds it, if readers may see everything before that."""
    following = ledger.starts.get(last + 1)
    if last < 0 or following is None:
        return None
    end = {p: following.get(p, 0) for p in sink.stable}
    return end if all(sink.stable[p] >= offset for p, offset in end.items()) else None


def _start(files: ReadableFiles, config: StreamConfig, sink: TopicEnds, ledger: _Ledger) -> dict[int, int]:
    """Where the sink ended when the stream's first batch began; its beginning, where that is unknown."""
    first = ledger.starts.get(0)
    if first is None and files.exists(ADOPTION):
        raise CannotTell(
            "adopted",
            f"{config.sink} also holds what an earlier checkpoint wrote, and the ledger no longer says where that ends.",
            "verify at depth `sink`",
        )
    start = {p: (first or {}).get(p, 0) for p in sink.stable}
    _refuse_gone(config.sink, "sink", sink, start)
    return start


def refuse_deleted(kafka: Mapping[str, Any], ranges: Mapping[str, Mapping[int, tuple[int, int]]]) -> None:
    """The source must still hold every record of the range."""
    for topic, partitions in ranges.items():
        ends = topic_ends(kafka, topic)
        if ends is None:
            raise CannotTell("no_topic", f"The source topic {topic} does not exist any more.", "verify at depth `sink`")
        _refuse_gone(topic, "source", ends, {p: start for p, (start, end) in partitions.items() if start < end})


def _refuse_gone(topic: str, role: str, ends: TopicEnds, start: Mapping[int, int]) -> None:
    for partition, offset in start.items():
        first = ends.earliest.get(partition, 0)
        # A partition in which everything was deleted and nothing new came has lost records as well.
        if first > offset:
            raise CannotTell(
                f"{role}_truncated",
                f"{topic}-{partition} begins at offset {first}, the range at {offset}: retention has deleted records of it.",
                f"recompute before the {role}'s retention ends, or verify at depth `sink`",
            )
    if "compact" in ends.policy:
        raise CannotTell(
            f"{role}_compacted",
            f"{topic} has cleanup.policy={ends.policy}: compaction removes records.",
            "verify at depth `ledger`",
        )


def _sink_ends(kafka: Mapping[str, Any], topic: str) -> TopicEnds:
    ends = topic_ends(kafka, topic)
    if ends is None:
        raise CannotTell("no_topic", f"The sink topic {topic} does not exist.", "check the name")
    return ends


def _read_ledger(
    kafka: Mapping[str, Any], config: StreamConfig, query_id: str | None, logs: dict[int, LaneLog]
) -> _Ledger:
    topic = ledger_topic(config.sink_id)
    ends = topic_ends(kafka, topic)
    if ends is None:
        return _Ledger({})
    with open_reader(kafka) as reader:
        lanes = [logs.setdefault(lane, LaneLog(topic, lane)).read(reader) for lane in sorted(ends.stable)]
    mine = [r for records in lanes for r in records if r.query_id == query_id and r.kind != ANCHOR]
    return _Ledger(_starts(mine, config.sink), ends.still)


def _starts(records: list[LedgerRecord], sink: str) -> dict[int, dict[int, int]]:
    """batch -> where the sink ended when it began; the earliest of its attempts counts."""
    starts: dict[int, dict[int, int]] = {}
    for record in records:
        batch = starts.setdefault(record.batch, {})
        for partition, offset in record.sink_start.get(sink, {}).items():
            number = int(partition)
            batch[number] = min(batch.get(number, offset), offset)
    return starts


def topic_ends(kafka: Mapping[str, Any], topic: str) -> TopicEnds | None:
    """Where a topic begins and ends for both kinds of readers; None when there is no such topic."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

    admin: Any = AdminClient({**kafka, "reconnect.backoff.ms": 10})
    metadata = patiently(lambda: admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic], ASK_SECONDS)
    if metadata.error is not None:
        if metadata.error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return None
        raise StreamError(f"Kafka does not show the topic {topic}: {metadata.error.str()}")
    spec: Any = OffsetSpec

    def ask(which: Any, isolation: Any) -> dict[int, int]:
        asked = {TopicPartition(topic, p): which for p in metadata.partitions}
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=ASK_SECONDS)
        return {partition.partition: future.result().offset for partition, future in futures.items()}

    # The stable end first: a transaction that commits in between must not look like one that is open.
    stable = patiently(lambda: ask(spec.latest(), IsolationLevel.READ_COMMITTED), ASK_SECONDS)
    high = patiently(lambda: ask(spec.latest(), IsolationLevel.READ_UNCOMMITTED), ASK_SECONDS)
    earliest = patiently(lambda: ask(spec.earliest(), IsolationLevel.READ_UNCOMMITTED), ASK_SECONDS)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        entries = admin.describe_configs([resource], request_timeout=ASK_SECONDS)[resource].result()
        policy = str(entries["cleanup.policy"].value)
    except (KafkaException, KeyError):
        policy = "delete"  # this user may not ask
    return TopicEnds(earliest, stable, high, policy)
