"""Preflight: checks whether it is safe to start or resume a stream now. A finding names the problem, the risk, and what helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_ckpt.exceptions import BadArgument, PreflightRefused
from airflow_ckpt.streams.durations import in_words, to_timedelta
from airflow_ckpt.streams.observation import SourcePosition
from airflow_ckpt.streams.status import HEALTHY, STALLED, StreamStatus
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.errors import Refused, StreamError
from ckpt_stream.protocol.data_loss import LostRange, find_lost
from ckpt_stream.protocol.topic_ends import TopicEnds

DRIVER_ALIVE, DATA_LOST, DATA_SOON_LOST = "driver_alive", "data_lost", "data_soon_lost"
LEDGER, PARTITIONS_GONE, PARTITIONS_ADDED = "ledger", "partitions_gone", "partitions_added"
TOPIC_MISSING, KAFKA = "topic_missing", "kafka_unreachable"
CHECKPOINT, STORAGE = "checkpoint_unreadable", "storage_unreachable"
TRANSACTION_TIMEOUT, HEAD_TRIMMED, TOPICS_GONE = "transaction_timeout", "head_trimmed", "topics_gone"
PREFLIGHT_KINDS = (
    DRIVER_ALIVE, DATA_LOST, DATA_SOON_LOST, LEDGER, PARTITIONS_GONE, PARTITIONS_ADDED, TOPIC_MISSING, KAFKA, CHECKPOINT, STORAGE,
    TRANSACTION_TIMEOUT, HEAD_TRIMMED, TOPICS_GONE,
)  # fmt: skip
SourceTopics = Mapping[str, TopicEnds | None]
#: A warning is given if retention will delete unread records within this time.
SOON_SECONDS = 24 * 3600.0
SOON_PART = 0.25


@dataclass(frozen=True)
class PreflightFinding:
    """A reason against a start, or a warning before it."""

    kind: str
    what: str
    risk: str
    helps: str
    #: True: the start is refused unless this kind is allowed by name.
    unsafe: bool = True
    #: True: the finding may disappear without a user's action, as when brokers are restarted.
    temporary: bool = False
    #: The ranges that the source has lost: if a user allows this finding, the run skips exactly these.
    lost: tuple[LostRange, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.what} {self.risk} What helps: {self.helps}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class StartConditions:
    """Everything that was read for the decision about a start."""

    status: StreamStatus
    position: SourcePosition
    #: Seconds since the epoch.
    now: float
    #: Topics besides the source that must exist: sink, dead-letter.
    missing_topics: Sequence[str] = ()
    retention_ms: Mapping[str, int | None] = field(default_factory=dict)
    #: The refusal that the driver would raise because of ledger and checkpoint.
    ledger_refusal: StreamError | None = None
    transaction_max_ms: int | None = None


def check(stream: Stream, start: StartConditions) -> list[PreflightFinding]:
    """All findings, the unsafe findings first."""
    found = [*_driver(stream, start), *_reachable(stream, start)]
    if (topics := start.position.topics) is not None:
        found += [
            *_topics(stream, start, topics),
            *_source(start, topics),
            *_transaction(stream, start),
            *_ledger(start),
        ]
    return sorted(found, key=lambda finding: not finding.unsafe)


def refuse_unsafe_start(stream: Stream, findings: Sequence[PreflightFinding], allow: Sequence[str]) -> None:
    """Raise PreflightRefused for unsafe findings that are not allowed by name."""
    if unknown := sorted(set(allow) - set(PREFLIGHT_KINDS)):
        raise BadArgument(f"allow={unknown} names no finding of preflight; they are: {', '.join(PREFLIGHT_KINDS)}.")
    if refused := [f for f in findings if f.unsafe and f.kind not in allow]:
        raise PreflightRefused(stream.name, refused)


def _driver(stream: Stream, start: StartConditions) -> Iterator[PreflightFinding]:
    status = start.status
    if status.state in HEALTHY or (status.state == STALLED and status.run):
        yield PreflightFinding(
            DRIVER_ALIVE,
            f"Run {status.run or status.token} of {stream.name} is {status.state}.",
            "Two drivers on one checkpoint fence each other without end.",
            f"let it run, or stop it first: `airflow-ckpt stop {stream.checkpoint}`.",
        )


def _reachable(stream: Stream, start: StartConditions) -> Iterator[PreflightFinding]:
    if (error := start.position.checkpoint_error) is not None:
        yield PreflightFinding(
            STORAGE,
            f"The checkpoint {stream.checkpoint} cannot be read: {error}.",
            "The position of the stream is unknown.",
            "check path, credentials and network of the checkpoint; `airflow-ckpt inspect` shows more.",
            temporary=True,
        )
    for finding in start.position.checkpoint.findings if start.position.checkpoint else ():
        if finding.kind != "no_checkpoint":
            yield PreflightFinding(CHECKPOINT, finding.what, "Spark would not start on it.", finding.helps)
    if start.position.topics is None:
        yield PreflightFinding(
            KAFKA,
            start.position.kafka_error or "Kafka was not asked.",
            "The driver could neither read nor write.",
            "check the brokers and the `kafka` connection, then try again.",
            temporary=True,
        )


def _topics(stream: Stream, start: StartConditions, topics: SourceTopics) -> Iterator[PreflightFinding]:
    missing = [topic for topic, ends in topics.items() if ends is None] + list(start.missing_topics)
    if not topics:
        missing.append(stream.source_pattern or "(no source)")
    for topic in missing:
        yield PreflightFinding(
            TOPIC_MISSING,
            f"The topic {topic} does not exist.",
            "The stream cannot read or write it.",
            "create it, or correct the stream's source, sink or dead_letter_topic.",
        )


def _source(start: StartConditions, topics: SourceTopics) -> Iterator[PreflightFinding]:
    position = start.position.checkpoint.position if start.position.checkpoint else {}
    if not position or not topics:  # a missing topic has its own finding
        return
    there = {topic: ends for topic, ends in topics.items() if ends is not None}
    lost = find_lost(position, {topic: ends.earliest for topic, ends in there.items()})
    for topic in sorted({*position, *there}):
        of_topic = [one for one in lost if one.topic == topic]
        if topic not in topics:
            yield _topic_gone(topic, of_topic)
        elif topic in there:
            yield from _partitions(topic, position.get(topic, {}), there[topic], of_topic)
            harmed = {one.partition for one in of_topic}
            for partition in sorted({int(p) for p in position.get(topic, {})} - harmed):
                yield from _soon(topic, partition, start)


def _topic_gone(topic: str, lost: Sequence[LostRange]) -> PreflightFinding:
    ends = ", ".join(f"{one.partition} at {one.start}" for one in lost)
    return PreflightFinding(
        TOPICS_GONE,
        f"The checkpoint continues in the topic {topic} (partition {ends}), but the source no longer has this topic.",
        "The records that were written to it after that are lost unread, and Spark would fail every run.",
        "find out who deleted it, or correct the stream's source; or continue without it by allowing this finding.",
        lost=tuple(lost),
    )


def _partitions(
    topic: str, known: Mapping[str, int], ends: TopicEnds, lost: Sequence[LostRange]
) -> Iterator[PreflightFinding]:
    if gone := [one for one in lost if one.end is None]:
        yield PreflightFinding(
            PARTITIONS_GONE,
            f"{topic} has no partition {', '.join(str(one.partition) for one in gone)} any more; the checkpoint has read "
            "from it.",
            "The topic was deleted and created again: offsets in the checkpoint point to records that do not exist.",
            "find out who did it; start over with a new checkpoint and sink_id.",
            lost=tuple(gone),
        )
    if added := sorted(p for p in ends.stable if str(p) not in known):
        yield PreflightFinding(
            PARTITIONS_ADDED,
            f"{topic} has new partitions: {', '.join(map(str, added))}.",
            "They are read from their beginning; a key may have moved to another partition.",
            "do nothing, if that was planned; otherwise find out why they were added.",
            unsafe=False,
        )
    for one in lost:
        if one.end is None:
            continue
        count, where = one.end - one.start, f"{topic}-{one.partition}"
        if str(one.partition) in known:
            yield PreflightFinding(
                DATA_LOST,
                f"{where}: the checkpoint continues at offset {one.start}, but the topic begins at {one.end}.",
                f"{count} offsets ({one.start} to {one.end - 1}) were deleted before they were read: their records are lost.",
                "put them back from elsewhere and start over; or accept the loss by allowing this finding.",
                lost=(one,),
            )
        else:
            yield PreflightFinding(
                HEAD_TRIMMED,
                f"{where} is new to the stream, and begins at offset {one.end}.",
                f"{count} offsets (0 to {one.end - 1}) were deleted before the stream read the partition, and Spark would fail "
                "every run.",
                "put them back from elsewhere; or read the partition from its first record by allowing this finding.",
                lost=(one,),
            )


def _soon(topic: str, partition: int, start: StartConditions) -> Iterator[PreflightFinding]:
    """A warning if retention will soon delete the first unread record."""
    retention, since = start.retention_ms.get(topic), (start.position.unread_since or {}).get((topic, partition))
    if retention is None or retention < 0 or since is None:
        return
    left = since + retention / 1000 - start.now
    # If records are kept for a few hours only, a new record is not in danger yet.
    if left < min(SOON_SECONDS, retention / 1000 * SOON_PART):
        when = f"in {in_words(left)}" if left > 0 else "at any moment"
        yield PreflightFinding(
            DATA_SOON_LOST,
            f"{topic}-{partition}: retention deletes the first unread record {when}.",
            "Records that are deleted before they are read are lost.",
            f"resume now; or raise retention.ms of {topic} first.",
            unsafe=False,
        )


def _transaction(stream: Stream, start: StartConditions) -> Iterator[PreflightFinding]:
    wanted = to_timedelta(stream.transaction_timeout, "transaction_timeout").total_seconds()
    if start.transaction_max_ms is not None and wanted * 1000 > start.transaction_max_ms:
        yield PreflightFinding(
            TRANSACTION_TIMEOUT,
            f"transaction_timeout is {in_words(wanted)}, the brokers allow {in_words(start.transaction_max_ms / 1000)}.",
            "Kafka would refuse every transaction.",
            "lower the stream's transaction_timeout, or raise the brokers' transaction.max.timeout.ms.",
        )


def _ledger(start: StartConditions) -> Iterator[PreflightFinding]:
    refusal = start.ledger_refusal
    if isinstance(refusal, Refused):
        yield PreflightFinding(LEDGER, f"{type(refusal).__name__}: {refusal.found}", refusal.risk, refusal.helps)
    elif refusal is not None:
        yield PreflightFinding(
            LEDGER,
            str(refusal),
            "Ledger and checkpoint could not be compared.",
            "do what the message says, then try again.",
            temporary=refusal.restart_may_help,
        )
