"""The stream's configuration: one JSON document without secrets, passed when the application is submitted."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.data_loss import LostRange, lost_ranges_from
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.settings.input_names import SECRETS_ENVIRONMENT, SECRETS_PROPERTY
from ckpt_stream.protocol.settings.secret_names import is_secret
from ckpt_stream.protocol.settings.setting import (
    Group,
    Kind,
    about,
    check_value,
    in_seconds,
    may_be_none,
    required,
    setting,
    settings_of,
)
from ckpt_stream.protocol.settings.stream_settings import AT_LEAST_ONCE, StreamSettings

#: Kafka's limit for a topic's name is 249.
LONGEST_SINK_ID = 249 - len(ledger_topic(""))
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, kw_only=True)
class StreamConfig(StreamSettings[float, int, bool, tuple[str, ...], Offsets]):
    """Everything that `run` needs to know; times are seconds."""

    kafka: Mapping[str, Any] = field(metadata=about(Group.RUN, Kind.MAPPING, "Kafka settings that are no secrets"))
    token: str = setting("", Group.RUN, Kind.TEXT, "given by the submitter, which recognises its run by it")
    accepted_loss: tuple[LostRange, ...] = setting(
        (),
        Group.RUN,
        Kind.OWN,
        "unread ranges of the source that are gone, and that a user lets this run pass over: "
        '`[{"topic": ..., "partition": ..., "start": ..., "end": ...}]`; `end` is the first offset that still exists, or '
        "null where the partition is gone",
    )

    def __post_init__(self) -> None:
        _set(self, "sink_id", self.sink_id or self.name)
        _set(self, "group", self.group or self.name)
        _set(self, "source", (self.source,) if isinstance(self.source, str) else self.source or ())
        optional = may_be_none(self)
        for name, known in settings_of(self).items():
            _set(self, name, in_seconds(getattr(self, name)))
            if (value := getattr(self, name)) is not None or name not in optional:
                check_value(name, value, known)
        _set(self, "source", tuple(self.source))
        _check_names(self)
        _check_topics(self)
        _check_start(self)
        _set(self, "accepted_loss", _accepted_loss(self.accepted_loss))
        for name, known in settings_of(self).items():
            if known.kind is Kind.OFFSETS:
                _set(self, name, _offsets(self, name, known.least))


def _set(c: StreamConfig, name: str, value: object) -> None:
    object.__setattr__(c, name, value)


def _accepted_loss(given: Any) -> tuple[LostRange, ...]:
    if not isinstance(given, list | tuple):
        raise ConfigError(f"accepted_loss must be a list of ranges, not of type {type(given).__name__}.")
    try:
        return lost_ranges_from(given)
    except ValueError as e:
        raise ConfigError(f"accepted_loss: {e}.") from e


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
        raise ConfigError(f"Source and sink are both {c.sink!r}: the stream would read what it writes, without end.")
    ledger = ledger_topic(c.sink_id)
    if c.source_pattern:
        try:
            pattern = re.compile(c.source_pattern)
        except re.error as e:
            raise ConfigError(f"source_pattern={c.source_pattern!r} is not a regular expression: {e}.") from e
        if own := [topic for topic in (c.sink, c.dead_letter_topic, ledger) if topic and pattern.fullmatch(topic)]:
            raise ConfigError(
                f"source_pattern={c.source_pattern!r} matches {', '.join(own)}: the stream would read what it writes, "
                "without end."
            )
    if c.malformed == "dead_letter" and not c.dead_letter_topic:
        raise ConfigError("malformed='dead_letter' needs dead_letter_topic.")
    if c.dead_letter_topic and c.dead_letter_topic in (*c.source, c.sink):
        raise ConfigError(f"The dead-letter topic {c.dead_letter_topic!r} must be neither source nor sink.")
    if ledger in (*c.source, c.sink, c.dead_letter_topic):
        raise ConfigError(f"The topic {ledger!r} is the stream's ledger and no source or sink: change sink_id.")


def _check_start(c: StreamConfig) -> None:
    if c.start == "timestamp" and c.start_timestamp_ms is None:
        raise ConfigError("start='timestamp' needs start_timestamp_ms.")
    if c.start == "explicit" and not c.start_offsets:
        raise ConfigError("start='explicit' needs start_offsets.")
    if c.start == "ledger" and c.guarantee == AT_LEAST_ONCE:
        raise ConfigError("start='ledger' needs guarantee='exactly_once': Spark's own sink keeps no ledger.")


def _offsets(c: StreamConfig, name: str, least: float) -> dict[str, dict[str, int]]:
    """Offsets in Spark's form, ``{topic: {"partition": offset}}``; a topic that the stream does not read is an error."""
    given: Mapping[str, Any] = getattr(c, name)
    for topic, partitions in given.items():
        if c.source and topic not in c.source:
            raise ConfigError(f"{name} names the topic {topic!r}, which is not in source ({', '.join(c.source)}).")
        if not isinstance(partitions, Mapping):
            raise ConfigError(f"{name} must be of the form {{topic: {{partition: offset}}}}.")
        for partition, offset in partitions.items():
            fits = str(partition).isdecimal() and isinstance(offset, int) and not isinstance(offset, bool)
            if not fits or offset < least:
                raise ConfigError(
                    f"{name} gives {topic}-{partition} the offset {offset!r}: a number from {least:g} on."
                )
    return {topic: {str(p): int(o) for p, o in partitions.items()} for topic, partitions in given.items()}


def from_json(text: str) -> StreamConfig:
    """Read the document; unknown settings and secrets in it raise ConfigError."""
    try:
        document = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"The stream's configuration is not JSON: {e}") from e
    if not isinstance(document, dict):
        raise ConfigError("The stream's configuration must be a JSON object.")
    known = {f.name for f in fields(StreamConfig)}
    if unknown := sorted(set(document) - known):
        raise ConfigError(f"Unknown settings in the stream's configuration: {', '.join(unknown)}.")
    if missing := sorted(set(required(StreamConfig)) - set(document)):
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
    return StreamConfig(**document)
