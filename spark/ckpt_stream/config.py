"""The stream's configuration: one JSON document, passed by whoever submits the application.

It comes as the application's first argument, as a file (``@path``), or in the environment variable ``CKPT_STREAM``.
It holds no secrets: those are given as the Spark property ``spark.ckpt.kafka.secrets`` (in a properties file) or the
environment variable ``CKPT_KAFKA_SECRETS``, each a JSON object of librdkafka settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ckpt_stream.errors import ConfigError
from ckpt_stream.security import is_secret

ENVIRONMENT = "CKPT_STREAM"
SECRETS_ENVIRONMENT = "CKPT_KAFKA_SECRETS"
#: "secret" in the name makes Spark redact it in its UI and logs.
SECRETS_PROPERTY = "spark.ckpt.kafka.secrets"

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
START_MODES = ("group", "earliest", "latest", "timestamp", "explicit", "ledger")
MIRROR_MODES = ("on_checkpoint", "periodic", "disabled")
MALFORMED_POLICIES = ("skip", "dead_letter", "fail")
OUTPUT_MODES = ("append", "update", "complete")
#: One lane per task is written by one librdkafka; more than this is a typing error, not a plan.
MAX_LANES = 1024


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
    output_mode: str = "append"
    audit: str = "none"
    ledger_history: int = 1000
    include_headers: bool = False
    source_options: Mapping[str, str] = field(default_factory=dict)
    application_version: str = ""
    #: Given by the submitter, so that it finds its run again.
    token: str = ""
    heartbeat: float = 5.0
    #: For the application itself.
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sink_id", self.sink_id or self.name)
        object.__setattr__(self, "group", self.group or self.name)
        if isinstance(self.source, str):
            object.__setattr__(self, "source", (self.source,))
        object.__setattr__(self, "source", tuple(self.source))
        _check(self)


def _check(c: StreamConfig) -> None:
    for name in ("name", "checkpoint", "sink"):
        if not getattr(c, name):
            raise ConfigError(f"The stream's configuration lacks {name!r}.")
    if bool(c.source) == bool(c.source_pattern):
        raise ConfigError("Give either source (topics) or source_pattern (a regular expression), not both or neither.")
    if c.sink in c.source:
        raise ConfigError(f"Source and sink are both {c.sink!r}: the stream would read what it writes, for ever.")
    if "bootstrap.servers" not in c.kafka:
        raise ConfigError("The stream's Kafka settings lack 'bootstrap.servers'.")
    _one_of(c, "guarantee", (EXACTLY_ONCE, AT_LEAST_ONCE))
    _one_of(c, "start", START_MODES)
    _one_of(c, "offset_mirror", MIRROR_MODES)
    _one_of(c, "malformed", MALFORMED_POLICIES)
    _one_of(c, "output_mode", OUTPUT_MODES)
    _one_of(c, "audit", ("none", "record"))
    _at_least(c, "lanes", 1, MAX_LANES)
    _at_least(c, "transaction_timeout", 1)
    _at_least(c, "batch_timeout", 1)
    _at_least(c, "ledger_history", 2)
    _at_least(c, "min_pause", 0)
    _at_least(c, "trigger_interval", 0)
    _at_least(c, "heartbeat", 0.1)
    if c.max_offsets_per_batch is not None:
        _at_least(c, "max_offsets_per_batch", 1)
    for mode, needed in (("timestamp", "start_timestamp_ms"), ("explicit", "start_offsets")):
        if c.start == mode and not getattr(c, needed):
            raise ConfigError(f"start={mode!r} needs {needed}.")
    if c.malformed == "dead_letter" and not c.dead_letter_topic:
        raise ConfigError("malformed='dead_letter' needs dead_letter_topic.")
    if c.dead_letter_topic and c.dead_letter_topic in (*c.source, c.sink):
        raise ConfigError(f"The dead-letter topic {c.dead_letter_topic!r} must be a topic of its own.")


def _one_of(c: StreamConfig, name: str, allowed: Sequence[str]) -> None:
    if getattr(c, name) not in allowed:
        raise ConfigError(f"{name}={getattr(c, name)!r} is none of {', '.join(allowed)}.")


def _at_least(c: StreamConfig, name: str, least: float, most: float = float("inf")) -> None:
    value = getattr(c, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        upper = "" if most == float("inf") else f" and at most {most:g}"
        raise ConfigError(f"{name}={value!r} must be a number of at least {least:g}{upper}.")


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
    if leaked := sorted(name for name in document["kafka"] if is_secret(name)):
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
        return Path(argv[1][1:]).read_text() if argv[1].startswith("@") else argv[1]
    if text := os.environ.get(ENVIRONMENT):
        return text
    raise ConfigError(
        "No configuration: give the stream's JSON document as first argument, as @file, or in the environment variable "
        f"{ENVIRONMENT}."
    )


def kafka_settings(config: StreamConfig, property_text: str | None) -> dict[str, Any]:
    """All librdkafka settings of the stream, the secrets added."""
    settings = dict(config.kafka)
    for source, text in ((SECRETS_PROPERTY, property_text), (SECRETS_ENVIRONMENT, os.environ.get(SECRETS_ENVIRONMENT))):
        if not text:
            continue
        try:
            secrets = json.loads(text)
        except ValueError:
            raise ConfigError(f"{source} is not a JSON object of Kafka settings.") from None
        settings.update(secrets)
    return settings
