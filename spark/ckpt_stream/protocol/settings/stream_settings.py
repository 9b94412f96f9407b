"""The settings of a stream that Airflow and the driver share: each is declared here, once.

Airflow's `Stream` and the driver's `StreamConfig` derive from `StreamSettings` and add settings that only one of them needs.
Types, limits, the driver's document, the tables in docs/ and the stored samples of tests/compatibility are derived from the
declarations here. To add a setting, declare it here, and run `scripts/stream_settings.py`, which writes the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from ckpt_stream.protocol.settings.setting import Group, Kind, about, setting

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
START_MODES = ("group", "earliest", "latest", "timestamp", "explicit", "ledger")
MIRROR_MODES = ("on_checkpoint", "periodic", "disabled")
MALFORMED_POLICIES = ("skip", "dead_letter", "fail")
OUTPUT_MODES = ("append", "update", "complete")
#: Each lane has a Spark task and a producer of its own, so a higher number is taken as a typing error.
MAX_LANES = 1024
#: In Spark's start offsets, -1 is the latest offset and -2 the earliest.
LATEST_OR_EARLIEST = -2

# In `Stream`, a user may write a template for a number or a switch, and a duration in words; the driver gets the values.
TimeT = TypeVar("TimeT")
WholeT = TypeVar("WholeT")
SwitchT = TypeVar("SwitchT")
TopicsT = TypeVar("TopicsT")
OffsetsT = TypeVar("OffsetsT")


@dataclass(frozen=True, kw_only=True)
class StreamSettings(Generic[TimeT, WholeT, SwitchT, TopicsT, OffsetsT]):
    """The settings of a stream that the driver and Airflow both use."""

    # The stream
    name: str = field(
        metadata=about(
            Group.STREAM,
            Kind.TEXT,
            "names the stream, and its consumer group, ledger and transactional ids unless those are given",
        )
    )
    application_version: str = setting(
        "", Group.STREAM, Kind.TEXT, "version of the application, written to the ledger with each batch"
    )
    options: Mapping[str, Any] = setting(
        {}, Group.STREAM, Kind.MAPPING, "the application's own settings; not for secrets"
    )

    # Source
    source: TopicsT = setting((), Group.SOURCE, Kind.TEXTS, "topic or topics that are read")
    source_pattern: str | None = setting(
        None, Group.SOURCE, Kind.TEXT, "a regular expression for topics, in place of `source`"
    )
    source_options: Mapping[str, str] = setting(
        {},
        Group.SOURCE,
        Kind.MAPPING,
        "options of Spark's Kafka source; those that would break the guarantee (`failOnDataLoss`, `minPartitions`, "
        "`maxRecordsPerPartition`, ...) are refused",
    )
    include_headers: SwitchT = setting(
        False, Group.SOURCE, Kind.SWITCH, "give the application the headers of the source's records"
    )
    malformed: str = setting(
        "skip",
        Group.SOURCE,
        Kind.TEXT,
        "what happens to records that the application calls malformed: `skip` (and count), `dead_letter`, or `fail`",
        one_of=MALFORMED_POLICIES,
    )
    dead_letter_topic: str | None = setting(
        None, Group.SOURCE, Kind.TEXT, "topic for malformed records, written in the same transaction"
    )
    group: str = setting(
        "", Group.SOURCE, Kind.TEXT, "consumer group whose offsets show the progress to lag tools; empty: the name"
    )
    offset_mirror: str = setting(
        "on_checkpoint",
        Group.SOURCE,
        Kind.TEXT,
        "when the group's offsets are committed: after each batch, `periodic`, or `disabled`. A resume does not use them",
        one_of=MIRROR_MODES,
    )
    offset_mirror_period: TimeT = setting(
        timedelta(seconds=30), Group.SOURCE, Kind.DURATION, 'for `offset_mirror="periodic"`', least=0
    )

    # Sink
    sink: str = field(metadata=about(Group.SINK, Kind.TEXT, "topic that is written"))
    guarantee: str = setting(
        EXACTLY_ONCE,
        Group.SINK,
        Kind.TEXT,
        "whether a failure may double records: with `at_least_once`, which is Spark's own sink, it may",
        one_of=(EXACTLY_ONCE, AT_LEAST_ONCE),
    )
    sink_id: str = setting(
        "",
        Group.SINK,
        Kind.TEXT,
        "names the ledger topic (`<sink id>.ledger`) and the transactional ids; unique in a Kafka cluster; empty: the name",
    )
    lanes: WholeT = setting(
        1, Group.SINK, Kind.WHOLE, "transactions per batch; see [lanes](exactly-once.md#lanes)", least=1, most=MAX_LANES
    )
    transaction_timeout: TimeT = setting(
        timedelta(minutes=1),
        Group.SINK,
        Kind.DURATION,
        "Kafka aborts a transaction that is open for longer; at most the brokers' `transaction.max.timeout.ms`",
        least=1,
    )
    output_mode: str | None = setting(
        None,
        Group.SINK,
        Kind.TEXT,
        "`append`, `update` or `complete`; empty: the mode that the application declares",
        one_of=OUTPUT_MODES,
    )
    audit: str = setting(
        "none",
        Group.SINK,
        Kind.TEXT,
        "`record`: each record carries a header with its batch, lane and place, so that a verdict can name it",
        one_of=("none", "record"),
    )
    ledger_history: WholeT = setting(
        1000,
        Group.SINK,
        Kind.WHOLE,
        "number of batches that the ledger keeps; a verification cannot go further back",
        least=2,
    )

    # Batches
    trigger_interval: TimeT = setting(
        timedelta(0),
        Group.BATCHES,
        Kind.DURATION,
        "time between the starts of two batches; 0: the next batch starts at once",
        least=0,
    )
    drain: SwitchT = setting(False, Group.BATCHES, Kind.SWITCH, "process the records that exist at the start, then end")
    stop_at: OffsetsT = setting(
        {},
        Group.BATCHES,
        Kind.OFFSETS,
        "end after the first batch that reaches these offsets, `{topic: {partition: offset}}`, in every named partition; that "
        "batch may go beyond",
        least=0,
    )
    max_offsets_per_batch: WholeT | None = setting(
        None,
        Group.BATCHES,
        Kind.WHOLE,
        "limits the size of a batch, and so of its transaction, when the stream has to catch up",
        least=1,
    )
    min_pause: TimeT = setting(
        timedelta(0),
        Group.BATCHES,
        Kind.DURATION,
        "shortest time between the end of a batch and the start of the next",
        least=0,
    )
    batch_timeout: TimeT = setting(
        timedelta(minutes=10), Group.BATCHES, Kind.DURATION, "a batch that takes longer fails the run", least=1
    )

    # Where a new stream begins
    start: str = setting(
        "group",
        Group.START,
        Kind.TEXT,
        "`group` (the consumer group's offsets, else the earliest), `earliest`, `latest`, `timestamp`, `explicit`, `ledger` "
        "(where the ledger ends: for a stateless stream that lost its checkpoint)",
        one_of=START_MODES,
    )
    start_timestamp_ms: WholeT | None = setting(
        None, Group.START, Kind.WHOLE, 'for `start="timestamp"`: milliseconds since the epoch', least=0
    )
    start_offsets: OffsetsT = setting(
        {},
        Group.START,
        Kind.OFFSETS,
        'for `start="explicit"`: `{topic: {partition: offset}}`',
        least=LATEST_OR_EARLIEST,
    )

    # Restart
    heartbeat: TimeT = setting(
        timedelta(seconds=5), Group.RESTART, Kind.DURATION, "time between two heartbeats of the driver", least=0.1
    )

    # Storage
    checkpoint: str = field(
        metadata=about(
            Group.STORAGE,
            Kind.TEXT,
            "a path that both Spark and Airflow can reach: `file://`, `hdfs://`, `s3a://`, `gs://`, `abfss://`",
        )
    )
