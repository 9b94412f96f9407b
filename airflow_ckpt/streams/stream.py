"""The declaration of a stream: written once, used by every operator, sensor and command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.streams.duration import Duration, to_timedelta
from airflow_ckpt.streams.restart import ExponentialDelay, RestartStrategy, strategy_from
from ckpt_stream.config import StreamConfig
from ckpt_stream.crash import ENVIRONMENT as CRASH_ORDERS
from ckpt_stream.crash import orders_in
from ckpt_stream.errors import ConfigError
from ckpt_stream.security import is_secret, secret_in

RUNNERS = ("auto", "process", "yarn", "kubernetes")
#: Lengths of time; the driver's configuration holds them as seconds, under the same names.
DURATIONS = (
    "trigger_interval", "min_pause", "batch_timeout", "transaction_timeout", "offset_mirror_period", "heartbeat",
)  # fmt: skip
OWN_DURATIONS = ("stall_after", "start_timeout")
NUMBERS = ("max_offsets_per_batch", "lanes", "start_timestamp_ms", "ledger_history")
SWITCHES = ("drain", "include_headers")
MAPPINGS = ("stop_at", "start_offsets", "source_options", "options", "spark_conf", "storage_options", "env")
LISTS = ("source", "jars", "packages", "py_files", "files")
#: Names of Kubernetes secrets, not secrets.
REFERENCES = ("spark.kubernetes.driver.secretKeyRef.", "spark.kubernetes.driver.secrets.")
#: What only Airflow needs to know.
OWN = (
    "application", "kafka_conn_id", "spark_conn_id", "restart", "runner", "spark_conf", "jars", "packages", "py_files", "files",
    "env", "checkpoint_conn_id", "webhdfs", "storage_options", *OWN_DURATIONS,
)  # fmt: skip


class BadStream(CkptError, ValueError):
    """A stream was declared in a way that cannot work."""


@dataclass(frozen=True)
class Stream:
    """One streaming job: application + source topics + sink topic + checkpoint.

    Every text may be a Jinja template; what can be checked before it is rendered is checked when the DAG is parsed.
    Times may be given as ``timedelta``, seconds, or ``"5 seconds"``.
    """

    #: Names the stream, its consumer group, ledger and transactional ids (unless those are given).
    name: str
    #: The PySpark application: a path, absolute or relative to the folder of applications, or a URL that Spark can read.
    application: str
    #: Any path that Hadoop and fsspec know: ``file://``, ``hdfs://``, ``s3a://``, ``gs://``, ``abfss://``.
    checkpoint: str
    sink: str
    source: str | tuple[str, ...] = ()
    source_pattern: str | None = None
    kafka_conn_id: str = "kafka_default"
    spark_conn_id: str = "spark_default"
    restart: RestartStrategy = field(default_factory=ExponentialDelay)
    #: Time between the starts of two batches; 0: a batch follows the one before it at once.
    trigger_interval: Duration = timedelta(0)
    #: Process what is there at the start, then end.
    drain: bool | str = False
    #: End after the first batch that reaches these offsets: ``{topic: {partition: offset}}``.
    stop_at: Mapping[str, Any] = field(default_factory=dict)
    max_offsets_per_batch: int | str | None = None
    min_pause: Duration = timedelta(0)
    batch_timeout: Duration = timedelta(minutes=10)
    lanes: int | str = 1
    transaction_timeout: Duration = timedelta(minutes=1)
    #: Where a stream without a checkpoint begins: group, earliest, latest, timestamp, explicit, ledger.
    start: str = "group"
    start_timestamp_ms: int | str | None = None
    start_offsets: Mapping[str, Any] = field(default_factory=dict)
    offset_mirror: str = "on_checkpoint"
    offset_mirror_period: Duration = timedelta(seconds=30)
    malformed: str = "skip"
    dead_letter_topic: str | None = None
    output_mode: str | None = None
    guarantee: str = "exactly_once"
    #: ``record``: every record carries a header with its batch, lane and place, so that a verdict names records.
    audit: str = "none"
    sink_id: str = ""
    group: str = ""
    ledger_history: int | str = 1000
    include_headers: bool | str = False
    source_options: Mapping[str, str] = field(default_factory=dict)
    application_version: str = ""
    heartbeat: Duration = timedelta(seconds=5)
    #: For the application itself.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: ``auto``: by the master and deploy mode of the Spark connection.
    runner: str = "auto"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    #: Environment of the driver; no secrets.
    env: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    #: Maven coordinates. With neither jars nor packages, the Kafka connector of the installed Spark.
    packages: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    #: A connection that lets Airflow read the checkpoint's storage.
    checkpoint_conn_id: str | None = None
    #: For a checkpoint on ``hdfs://``: the NameNode's HTTP address, ``http://namenode:9870`` by default.
    webhdfs: str | None = None
    #: fsspec options for reading the checkpoint; no secrets, those belong into a connection.
    storage_options: Mapping[str, Any] = field(default_factory=dict)
    #: Input waits and nothing is committed for so long: the stream is STALLED. By default twice the longer one of
    #: trigger_interval and batch_timeout.
    stall_after: Duration | None = None
    #: A driver that has not said RUNNING for so long is STALLED.
    start_timeout: Duration = timedelta(minutes=10)

    def __post_init__(self) -> None:
        for name in (*DURATIONS, *OWN_DURATIONS):
            value = getattr(self, name)
            if not is_template(value) and not (value is None and name == "stall_after"):
                self._set(name, to_timedelta(value, name))
        for name in LISTS:
            value = getattr(self, name)
            self._set(name, (value,) if isinstance(value, str) and value else tuple(value or ()))
        for name in MAPPINGS:
            self._set(name, dict(getattr(self, name) or {}))
        for name in ("stop_at", "start_offsets"):
            # JSON knows texts as names only: a partition must be the same after a trigger carried it.
            self._set(name, {t: _named_by_text(partitions) for t, partitions in getattr(self, name).items()})
        if isinstance(self.restart, Mapping):
            self._set("restart", strategy_from(self.restart))
        self._check()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    # Mappings make a dataclass unhashable, and Airflow puts values of DAGs into sets.
    def __hash__(self) -> int:
        return hash(json.dumps(self.as_dict(), sort_keys=True))

    def _check(self) -> None:
        for name in ("name", "application", "checkpoint", "sink", "kafka_conn_id", "spark_conn_id"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise BadStream(f"Stream({name}=...) must be a text, and not an empty one.")
        if not isinstance(self.restart, RestartStrategy):
            raise BadStream(
                "Stream(restart=...) must be NoRestart(), FixedDelay(), FailureRate() or ExponentialDelay()."
            )
        if self.runner not in RUNNERS and not is_template(self.runner):
            raise BadStream(f"Stream(runner={self.runner!r}) is none of {', '.join(RUNNERS)}.")
        for name in ("spark_conf", "storage_options", "source_options", "options", "env"):
            keys = _names(getattr(self, name))
            if leaked := [key for key in keys if is_secret(key) and not key.startswith(REFERENCES)]:
                raise BadStream(
                    f"Stream({name}=...) holds secrets ({', '.join(sorted(leaked))}), which would show in the DAG's source, the "
                    "UI and the database. Put them into a connection (kafka_conn_id, spark_conn_id, checkpoint_conn_id)."
                )
        for path, text in _texts_by_path(self.as_dict()):
            if not path.startswith(tuple(f"spark_conf.{name}" for name in REFERENCES)) and (secret := secret_in(text)):
                raise BadStream(
                    f"Stream({path.partition('.')[0]}=...) holds a secret ({secret} in {path}), which would show in the DAG's "
                    "source, the UI, the database and the process list. Put what belongs to Kafka, Spark or the storage into a "
                    "connection (kafka_conn_id, spark_conn_id, checkpoint_conn_id); let the application read its own from a "
                    "file or a secrets manager, and name here only where that is."
                )
        if not is_template(orders := str(self.env.get(CRASH_ORDERS, ""))):
            try:
                orders_in(orders)
            except ValueError as e:
                raise BadStream(f"Stream(env=...): {CRASH_ORDERS} is no crash order: {e}") from e
        if not self.has_templates:
            self._config({"bootstrap.servers": "checked-when-the-dag-is-parsed:0"})

    @property
    def has_templates(self) -> bool:
        return any(is_template(value) for value in _texts(self.as_dict()))

    def _config(self, kafka: Mapping[str, Any], token: str = "") -> StreamConfig:
        """What the driver will make of it; raises for what it would refuse."""
        try:
            return StreamConfig(kafka=dict(kafka), token=token, **self._settings())
        except ConfigError as e:
            raise BadStream(f"Stream {self.name!r}: {e}") from e

    def _settings(self) -> dict[str, Any]:
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OWN}
        for name in DURATIONS:
            settings[name] = settings[name].total_seconds()
        return settings

    def document(self, kafka: Mapping[str, Any], token: str) -> str:
        """The driver's configuration as JSON. Of the Kafka settings only those that are no secret."""
        public = {name: value for name, value in kafka.items() if not is_secret(name)}
        self._config(public, token)
        return json.dumps({**self._settings(), "kafka": public, "token": token}, indent=1)

    @property
    def config(self) -> StreamConfig:
        """The driver's configuration with its defaults filled in (sink_id, group); without Kafka settings."""
        return self._config({"bootstrap.servers": "not-asked:0"})

    @property
    def stall_window(self) -> timedelta:
        """How long input may wait while nothing is committed, before the stream counts as STALLED."""
        if self.stall_after is not None:
            return to_timedelta(self.stall_after, "stall_after")
        interval = to_timedelta(self.trigger_interval, "trigger_interval")
        return max(interval, to_timedelta(self.batch_timeout, "batch_timeout")) * 2

    def as_dict(self) -> dict[str, Any]:
        """JSON values, from which `from_dict` makes the same stream again. What equals the default is left out."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, timedelta):
                value = value.total_seconds()
            elif isinstance(value, RestartStrategy):
                value = value.as_dict()
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Mapping):
                value = dict(value)
            if value not in (None, "", [], {}):
                out[f.name] = value
        return out

    #: Airflow shows a template field by what this returns.
    serialize = as_dict

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Stream:
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise BadStream(f"A stream has no setting {', '.join(unknown)}.")
        given = dict(value)
        for name in (*NUMBERS, *SWITCHES):
            if isinstance(given.get(name), str) and not is_template(given[name]):
                given[name] = _plain(given[name], name)
        return cls(**given)

    def rendered(self, render: Callable[[Any], Any]) -> Stream:
        """The same stream with its templates filled in."""
        return Stream.from_dict(render(self.as_dict())) if self.has_templates else self

    def but(self, **changes: Any) -> Stream:
        """A copy with some settings changed."""
        return replace(self, **changes)


def is_template(value: object) -> bool:
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _named_by_text(value: Any) -> Any:
    return {str(name): inner for name, inner in value.items()} if isinstance(value, Mapping) else value


def _names(value: Any) -> list[str]:
    """The names in a mapping and in whatever it holds."""
    if isinstance(value, Mapping):
        return [found for name, inner in value.items() for found in (str(name), *_names(inner))]
    if isinstance(value, list | tuple):
        return [found for inner in value for found in _names(inner)]
    return []


def _texts(value: Any) -> list[str]:
    return [text for _, text in _texts_by_path(value)]


def _texts_by_path(value: Any, path: str = "") -> list[tuple[str, str]]:
    """The texts in a value, each with where it is: `options.jdbc.url`."""
    if isinstance(value, str):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [one for name, inner in value.items() for one in _texts_by_path(inner, f"{path}.{name}".lstrip("."))]
    if isinstance(value, list | tuple):
        return [one for inner in value for one in _texts_by_path(inner, path)]
    return []


def _plain(text: str, name: str) -> Any:
    """A number or a switch that came out of a template as text."""
    words = {"true": True, "false": False, "none": None, "null": None, "": None}
    lowered = text.strip().lower()
    if lowered in words:
        return words[lowered]
    try:
        return int(lowered)
    except ValueError:
        raise BadStream(f"Stream({name}=...) came out of its template as {text!r}, which is no whole number.") from None
