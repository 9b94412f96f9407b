"""The stream's configuration: one JSON document, passed when the application is submitted.

It comes as the application's first argument, as a file (``@path``), or in the environment variable ``CKPT_STREAM``.
It holds no secrets: those are given as the Spark property ``spark.ckpt.kafka.secrets`` (in a properties file) or the
environment variable ``CKPT_KAFKA_SECRETS``, each a JSON object of librdkafka settings.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ckpt_stream.data_loss import Lost, from_document
from ckpt_stream.errors import ConfigError
from ckpt_stream.ledger import ledger_topic
from ckpt_stream.security import is_secret

ENVIRONMENT = "CKPT_STREAM"
SECRETS_ENVIRONMENT = "CKPT_KAFKA_SECRETS"
#: The properties file with the secrets, where the one who started the driver has written one for it alone.
SECRETS_FILE_ENVIRONMENT = "CKPT_SECRETS_FILE"
#: "secret" in the name makes Spark redact it in its UI and logs.
SECRETS_PROPERTY = "spark.ckpt.kafka.secrets"

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
START_MODES = ("group", "earliest", "latest", "timestamp", "explicit", "ledger")
MIRROR_MODES = ("on_checkpoint", "periodic", "disabled")
MALFORMED_POLICIES = ("skip", "dead_letter", "fail")
OUTPUT_MODES = ("append", "update", "complete")
#: One lane per task is written by one librdkafka; more than this is a typing error, not a plan.
MAX_LANES = 1024
#: Kafka's limit for a topic's name is 249.
LONGEST_SINK_ID = 249 - len(ledger_topic(""))
#: In Spark's start offsets -1 is the latest and -2 the earliest.
LATEST_OR_EARLIEST = -2
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class StreamConfig:
    """Everything that `run` needs to know; times are seconds."""

    name: str
    checkpoint: str
    source: tuple[str, ...]
    sink: str
    kafka: Mapping[str, Any]
    source_pattern: str | None = None
    #: Names the ledger topic and the transactional ids: unique among all sinks of a Kafka cluster.
    sink_id: str = ""
    #: The consumer group that shows the stream's progress.
    group: str = ""
    guarantee: str = EXACTLY_ONCE
    trigger_interval: float = 0.0
    #: Process what is there at the start, then end (Trigger.AvailableNow).
    drain: bool = False
    #: End after the first batch that reaches these offsets in every partition named: {topic: {partition: offset}}.
    stop_at: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    max_offsets_per_batch: int | None = None
    min_pause: float = 0.0
    batch_timeout: float = 600.0
    lanes: int = 1
    transaction_timeout: float = 60.0
    start: str = "group"
    start_timestamp_ms: int | None = None
    start_offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    offset_mirror: str = "on_checkpoint"
    offset_mirror_period: float = 30.0
    malformed: str = "skip"
    dead_letter_topic: str | None = None
    #: None: what the application says.
    output_mode: str | None = None
    audit: str = "none"
    ledger_history: int = 1000
    include_headers: bool = False
    #: For one run, by a user's decision: unread ranges of the source that are gone, and that the run may go on behind.
    accepted_loss: tuple[Lost, ...] = ()
    source_options: Mapping[str, str] = field(default_factory=dict)
    application_version: str = ""
    #: Given by the submitter, so that it finds its run again.
    token: str = ""
    heartbeat: float = 5.0
    #: For the application itself.
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _set(self, "sink_id", self.sink_id or self.name)
        _set(self, "group", self.group or self.name)
        _set(self, "source", (self.source,) if isinstance(self.source, str) else self.source or ())
        _check_types(self)
        _set(self, "source", tuple(self.source))
        _check_names(self)
        _check_topics(self)
        _check_values(self)
        try:
            _set(self, "accepted_loss", from_document(self.accepted_loss))
        except ValueError as e:
            raise ConfigError(f"accepted_loss: {e}.") from e
        for name, least in (("start_offsets", LATEST_OR_EARLIEST), ("stop_at", 0)):
            _set(self, name, _offsets(self, name, least))


def _set(c: StreamConfig, name: str, value: object) -> None:
    object.__setattr__(c, name, value)


def _check_types(c: StreamConfig) -> None:
    """JSON has no types to speak of, and `"drain": "false"` would drain."""
    for kinds, what, names in (
        (str, "a text", ("name", "checkpoint", "sink", "sink_id", "group", "token", "application_version")),
        (str | None, "a text", ("source_pattern", "dead_letter_topic")),
        (bool, "true or false", ("drain", "include_headers")),
        (Mapping, "an object of names and values", ("kafka", "stop_at", "start_offsets", "source_options", "options")),
        (list | tuple, "a topic or a list of topics", ("source",)),
        (list | tuple, "a list of ranges", ("accepted_loss",)),
    ):
        for name in names:
            if not isinstance(value := getattr(c, name), kinds):
                raise ConfigError(f"{name} must be {what}, not of type {type(value).__name__}.")
    if not all(topic and isinstance(topic, str) for topic in c.source):
        raise ConfigError("source must be a topic or a list of topics, each a text.")


def _check_names(c: StreamConfig) -> None:
    for name in ("name", "checkpoint", "sink"):
        if not getattr(c, name):
            raise ConfigError(f"The stream's configuration lacks {name!r}.")
    if not c.kafka.get("bootstrap.servers"):
        raise ConfigError("The stream's Kafka settings lack 'bootstrap.servers'.")
    if not _PLAIN_NAME.fullmatch(c.sink_id) or len(c.sink_id) > LONGEST_SINK_ID:
        raise ConfigError(
            f"sink_id={c.sink_id!r} (by default the stream's name) names the ledger topic: letters, digits and . _ - "
            f"only, at most {LONGEST_SINK_ID}."
        )
    if c.token and not _PLAIN_NAME.fullmatch(c.token):
        raise ConfigError(f"token={c.token!r} is part of a file's name: letters, digits and . _ - only.")


def _check_topics(c: StreamConfig) -> None:
    if bool(c.source) == bool(c.source_pattern):
        raise ConfigError("Give either source (topics) or source_pattern (a regular expression), not both or neither.")
    if c.sink in c.source:
        raise ConfigError(f"Source and sink are both {c.sink!r}: the stream would read what it writes, for ever.")
    ledger = ledger_topic(c.sink_id)
    if c.source_pattern:
        try:
            pattern = re.compile(c.source_pattern)
        except re.error as e:
            raise ConfigError(f"source_pattern={c.source_pattern!r} is not a regular expression: {e}.") from e
        if own := [topic for topic in (c.sink, c.dead_letter_topic, ledger) if topic and pattern.fullmatch(topic)]:
            raise ConfigError(
                f"source_pattern={c.source_pattern!r} matches {', '.join(own)}: the stream would read what it writes, for "
                "ever."
            )
    if c.malformed == "dead_letter" and not c.dead_letter_topic:
        raise ConfigError("malformed='dead_letter' needs dead_letter_topic.")
    if c.dead_letter_topic and c.dead_letter_topic in (*c.source, c.sink):
        raise ConfigError(f"The dead-letter topic {c.dead_letter_topic!r} must be a topic of its own.")
    if ledger in (*c.source, c.sink, c.dead_letter_topic):
        raise ConfigError(f"The topic {ledger!r} is the stream's ledger and no source or sink: change sink_id.")


def _check_values(c: StreamConfig) -> None:
    _one_of(c, "guarantee", (EXACTLY_ONCE, AT_LEAST_ONCE))
    _one_of(c, "start", START_MODES)
    _one_of(c, "offset_mirror", MIRROR_MODES)
    _one_of(c, "malformed", MALFORMED_POLICIES)
    if c.output_mode is not None:
        _one_of(c, "output_mode", OUTPUT_MODES)
    _one_of(c, "audit", ("none", "record"))
    _at_least(c, "lanes", 1, MAX_LANES, whole=True)
    _at_least(c, "transaction_timeout", 1)
    _at_least(c, "batch_timeout", 1)
    _at_least(c, "ledger_history", 2, whole=True)
    _at_least(c, "min_pause", 0)
    _at_least(c, "trigger_interval", 0)
    _at_least(c, "offset_mirror_period", 0)
    _at_least(c, "heartbeat", 0.1)
    if c.max_offsets_per_batch is not None:
        _at_least(c, "max_offsets_per_batch", 1, whole=True)
    if c.start_timestamp_ms is not None:
        _at_least(c, "start_timestamp_ms", 0, whole=True)
    if c.start == "timestamp" and c.start_timestamp_ms is None:
        raise ConfigError("start='timestamp' needs start_timestamp_ms.")
    if c.start == "explicit" and not c.start_offsets:
        raise ConfigError("start='explicit' needs start_offsets.")
    if c.start == "ledger" and c.guarantee == AT_LEAST_ONCE:
        raise ConfigError("start='ledger' needs guarantee='exactly_once': Spark's own sink keeps no ledger.")


def _one_of(c: StreamConfig, name: str, allowed: Sequence[str]) -> None:
    if getattr(c, name) not in allowed:
        raise ConfigError(f"{name}={getattr(c, name)!r} is none of {', '.join(allowed)}.")


def _at_least(c: StreamConfig, name: str, least: float, most: float = math.inf, *, whole: bool = False) -> None:
    value = getattr(c, name)
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or value == math.inf or not least <= value <= most:
        upper = "" if most == math.inf else f" and at most {most:g}"
        raise ConfigError(f"{name}={value!r} must be a {'whole ' * whole}number of at least {least:g}{upper}.")


def _offsets(c: StreamConfig, name: str, least: int) -> dict[str, dict[str, int]]:
    """Offsets as Spark names them, ``{topic: {"partition": offset}}``; one that nobody reads would be ignored in silence."""
    given: Mapping[str, Any] = getattr(c, name)
    for topic, partitions in given.items():
        if c.source and topic not in c.source:
            raise ConfigError(f"{name} names the topic {topic!r}, which is not in source ({', '.join(c.source)}).")
        if not isinstance(partitions, Mapping):
            raise ConfigError(f"{name} must be of the form {{topic: {{partition: offset}}}}.")
        for partition, offset in partitions.items():
            fits = str(partition).isdecimal() and isinstance(offset, int) and not isinstance(offset, bool)
            if not fits or offset < least:
                raise ConfigError(f"{name} gives {topic}-{partition} the offset {offset!r}: a number from {least} on.")
    return {topic: {str(p): int(o) for p, o in partitions.items()} for topic, partitions in given.items()}


def from_json(text: str) -> StreamConfig:
    """Read the document; unknown names and secrets in it are errors, not surprises."""
    try:
        document = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"The stream's configuration is not JSON: {e}") from e
    if not isinstance(document, dict):
        raise ConfigError("The stream's configuration must be a JSON object.")
    known = {f.name for f in fields(StreamConfig)}
    if unknown := sorted(set(document) - known):
        raise ConfigError(f"Unknown settings in the stream's configuration: {', '.join(unknown)}.")
    if missing := sorted({"name", "checkpoint", "sink", "kafka"} - set(document)):
        raise ConfigError(f"The stream's configuration lacks {', '.join(missing)}.")
    if leaked := sorted(
        name
        for settings in (document["kafka"], document.get("source_options"))
        if isinstance(settings, dict)
        for name in settings
        if is_secret(name)
    ):
        raise ConfigError(
            f"The stream's configuration holds secrets ({', '.join(leaked)}), which would show in the process list. "
            f"Pass them as the Spark property {SECRETS_PROPERTY} in a properties file, or in the environment variable "
            f"{SECRETS_ENVIRONMENT}."
        )
    document.setdefault("source", ())
    return StreamConfig(**document)


def find_document(argv: Sequence[str]) -> str:
    """The document's text: first argument, ``@file``, or environment."""
    if len(argv) > 1:
        if not argv[1].startswith("@"):
            return argv[1]
        try:
            return Path(argv[1][1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            raise ConfigError(f"The stream's configuration cannot be read from {argv[1][1:]!r}: {e}.") from e
    if text := os.environ.get(ENVIRONMENT):
        return text
    raise ConfigError(
        "No configuration: give the stream's JSON document as first argument, as @file, or in the environment variable "
        f"{ENVIRONMENT}."
    )


def kafka_settings(config: StreamConfig, property_text: str | None) -> dict[str, Any]:
    """All librdkafka settings of the stream, the secrets added."""
    return with_secrets(config.kafka, property_text)


def with_secrets(kafka: Mapping[str, Any], property_text: str | None) -> dict[str, Any]:
    """Public librdkafka settings, with the secrets of Spark property and environment added."""
    settings = dict(kafka)
    for source, text in ((SECRETS_PROPERTY, property_text), (SECRETS_ENVIRONMENT, os.environ.get(SECRETS_ENVIRONMENT))):
        if not text:
            continue
        try:
            secrets = json.loads(text)
        except ValueError:
            secrets = None
        if not isinstance(secrets, dict):
            raise ConfigError(f"{source} is not a JSON object of Kafka settings.")
        settings.update(secrets)
    return settings


def delete_secrets_file() -> None:
    """Delete the file that the driver was given its secrets in: spark-submit has read it before it started Python."""
    for name in os.environ.pop(SECRETS_FILE_ENVIRONMENT, "").split(os.pathsep):
        if name:
            Path(name).unlink(missing_ok=True)
