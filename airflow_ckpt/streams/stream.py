"""The declaration of a stream: written once, used by every operator, sensor and command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from airflow_ckpt.exceptions import BadStream
from airflow_ckpt.streams.declared_secrets import secret_names, secret_value
from airflow_ckpt.streams.durations import Duration, to_timedelta
from airflow_ckpt.streams.restart_strategies import ExponentialDelay, RestartStrategy, strategy_from
from airflow_ckpt.streams.templates import is_template, number_or_switch, texts_by_path
from ckpt_stream.errors import ConfigError
from ckpt_stream.protocol.crash_points import ENVIRONMENT as CRASH_VARIABLE
from ckpt_stream.protocol.crash_points import armed_crashes
from ckpt_stream.protocol.data_loss import LostRange
from ckpt_stream.protocol.settings.config import StreamConfig
from ckpt_stream.protocol.settings.secret_names import is_secret
from ckpt_stream.protocol.settings.setting import Group, Kind, about, may_be_none, setting, settings_of
from ckpt_stream.protocol.settings.stream_settings import StreamSettings

RUNNERS = ("auto", "process", "yarn", "kubernetes")


@dataclass(frozen=True, kw_only=True)
class Stream(StreamSettings[Duration, int | str, bool | str, str | Sequence[str], Mapping[str, Any]]):
    """One streaming job: application + source topics + sink topic + checkpoint.

    Every text may be a Jinja template; everything that is not a template is checked when the DAG is parsed.
    Durations may be given as ``timedelta``, seconds, or ``"5 seconds"``. Settings that the driver needs too are declared in
    `StreamSettings`, settings that only Airflow needs are declared here.
    """

    # The stream
    application: str = field(
        metadata=about(
            Group.STREAM,
            Kind.TEXT,
            "the PySpark application: a path, absolute or relative to the folder of applications (see [install](install.md)), "
            "or a URL that Spark can read",
        )
    )

    # Source
    kafka_conn_id: str = setting(
        "kafka_default", Group.SOURCE, Kind.TEXT, "connection of type `kafka`, for source and sink"
    )

    # Restart
    restart: RestartStrategy = setting(
        ExponentialDelay(), Group.RESTART, Kind.OWN, "the [restart strategy](resume.md#restart-strategies)"
    )
    stall_after: Duration | None = setting(
        None,
        Group.RESTART,
        Kind.DURATION,
        "the stream is STALLED if input is waiting and nothing is committed for this time. Empty: twice the longer of "
        "`trigger_interval` and `batch_timeout`",
    )
    start_timeout: Duration = setting(
        timedelta(minutes=10),
        Group.RESTART,
        Kind.DURATION,
        "the stream is STALLED if its driver is not RUNNING after this time",
    )

    # Spark
    spark_conn_id: str = setting(
        "spark_default", Group.SPARK, Kind.TEXT, "connection of type `spark`: see [run on](run-on.md)"
    )
    runner: str = setting(
        "auto",
        Group.SPARK,
        Kind.TEXT,
        "`process`, `yarn` or `kubernetes`; `auto`: by master and deploy mode of the Spark connection",
        one_of=RUNNERS,
    )
    spark_conf: Mapping[str, str] = setting(
        {},
        Group.SPARK,
        Kind.MAPPING,
        "Spark properties. The first batch of a stateful stream fixes its `spark.sql.shuffle.partitions`",
    )
    env: Mapping[str, str] = setting({}, Group.SPARK, Kind.MAPPING, "environment of the driver; no secrets")
    jars: Sequence[str] = setting((), Group.SPARK, Kind.TEXTS, "jars, in place of the jars of the Kafka connector")
    packages: Sequence[str] = setting(
        (),
        Group.SPARK,
        Kind.TEXTS,
        "Maven coordinates. Without `jars` and `packages`: the jars of `[airflow_ckpt] spark_jars`, or else Spark downloads "
        "the Kafka connector of its version",
    )
    py_files: Sequence[str] = setting((), Group.SPARK, Kind.TEXTS, "more Python files; `ckpt_stream` is always sent")
    files: Sequence[str] = setting((), Group.SPARK, Kind.TEXTS, "more files")

    # Storage
    checkpoint_conn_id: str | None = setting(
        None,
        Group.STORAGE,
        Kind.TEXT,
        "connection with the credentials of the storage: login and password are key and secret, the extra field holds fsspec "
        "options",
    )
    webhdfs: str | None = setting(
        None,
        Group.STORAGE,
        Kind.TEXT,
        "for `hdfs://`: the NameNode's HTTP address, if that is not port 9870 of the host in the path",
    )
    storage_options: Mapping[str, Any] = setting(
        {}, Group.STORAGE, Kind.MAPPING, "fsspec options for reading the checkpoint; not for secrets"
    )

    def __post_init__(self) -> None:
        optional = may_be_none(self)
        for name, known in settings_of(self).items():
            value = getattr(self, name)
            if known.one_of and value == "" and name in optional:
                value = None
            self._set(name, value if value is None and name in optional else _normal(value, name, known.kind))
        if isinstance(self.restart, Mapping):
            self._set("restart", strategy_from(self.restart))
        self._check()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    # Mappings make a dataclass unhashable, and Airflow puts values of DAGs into sets.
    def __hash__(self) -> int:
        return hash(json.dumps(self.as_dict(), sort_keys=True))

    def _check(self) -> None:
        """Raise BadStream for settings that cannot work; templates are not checked yet."""
        optional = may_be_none(self)
        for f in fields(self):
            known, value = settings_of(self)[f.name], getattr(self, f.name)
            if known.one_of:
                if not (value in known.one_of or is_template(value) or (value is None and f.name in optional)):
                    choice = ", ".join(known.one_of)
                    raise BadStream(f"Stream {self.name!r}: {f.name}={value!r} is none of {choice}.")
            elif known.kind is Kind.TEXT and f.default not in (None, "") and not (isinstance(value, str) and value):
                raise BadStream(f"Stream({f.name}=...) must be a text, and not an empty one.")
        if not isinstance(self.restart, RestartStrategy):
            raise BadStream(
                "Stream(restart=...) must be NoRestart(), FixedDelay(), FailureRate() or ExponentialDelay()."
            )
        self._check_secrets()
        if not is_template(crashes := str(self.env.get(CRASH_VARIABLE, ""))):
            try:
                armed_crashes(crashes)
            except ConfigError as e:
                raise BadStream(f"Stream(env=...): {e}") from e
        if not self.has_templates:
            self._config({"bootstrap.servers": "checked-when-the-dag-is-parsed:0"})

    def _check_secrets(self) -> None:
        for name, known in settings_of(self).items():
            if known.kind is Kind.MAPPING and (leaked := secret_names(getattr(self, name))):
                raise BadStream(
                    f"Stream({name}=...) holds secrets ({', '.join(leaked)}), which would show in the DAG's source, the "
                    "UI and the database. Put them into a connection (kafka_conn_id, spark_conn_id, checkpoint_conn_id)."
                )
        if found := secret_value(self.as_dict()):
            path, secret = found
            raise BadStream(
                f"Stream({path.partition('.')[0]}=...) holds a secret ({secret} in {path}), which would show in the DAG's "
                "source, the UI, the database and the process list. Put secrets of Kafka, Spark or the storage into a "
                "connection (kafka_conn_id, spark_conn_id, checkpoint_conn_id); let the application read its own secrets "
                "from a file or a secrets manager, and declare only the place of that."
            )

    @property
    def has_templates(self) -> bool:
        return any(is_template(text) for _, text in texts_by_path(self.as_dict()))

    def _config(self, kafka: Mapping[str, Any], **of_the_run: Any) -> StreamConfig:
        """The driver's configuration; raises BadStream for settings that the driver would refuse."""
        try:
            return StreamConfig(kafka=dict(kafka), **of_the_run, **self._shared())
        except ConfigError as e:
            raise BadStream(f"Stream {self.name!r}: {e}") from e

    def _shared(self) -> dict[str, Any]:
        """The settings that the driver needs too, as JSON values."""
        return {name: _as_json(getattr(self, name)) for name in settings_of(StreamSettings)}

    def document(self, kafka: Mapping[str, Any], token: str, accepted_loss: Sequence[LostRange] = ()) -> dict[str, Any]:
        """The driver's configuration as JSON values, without the secret Kafka settings."""
        public = {name: value for name, value in kafka.items() if not is_secret(name)}
        self._config(public, token=token, accepted_loss=accepted_loss)
        document = {**self._shared(), "kafka": public, "token": token}
        return {**document, "accepted_loss": [one.as_dict() for one in accepted_loss]} if accepted_loss else document

    @property
    def config(self) -> StreamConfig:
        """The driver's configuration with its defaults filled in (sink_id, group); without Kafka settings."""
        return self._config({"bootstrap.servers": "not-asked:0"})

    @property
    def stall_window(self) -> timedelta:
        """How long input may wait without a commit before the stream counts as STALLED."""
        if self.stall_after is not None:
            return to_timedelta(self.stall_after, "stall_after")
        interval = to_timedelta(self.trigger_interval, "trigger_interval")
        return max(interval, to_timedelta(self.batch_timeout, "batch_timeout")) * 2

    def as_dict(self) -> dict[str, Any]:
        """JSON values from which `from_dict` makes the same stream. Empty settings are left out."""
        values = {f.name: _as_json(getattr(self, f.name)) for f in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, "", [], {})}

    #: Airflow shows a template field with the value that this returns.
    serialize = as_dict

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Stream:
        settings = settings_of(cls)
        if unknown := sorted(set(value) - set(settings)):
            raise BadStream(f"A stream has no setting {', '.join(unknown)}.")
        given = dict(value)
        for name, text in value.items():
            if settings[name].kind in (Kind.WHOLE, Kind.SWITCH) and isinstance(text, str) and not is_template(text):
                given[name] = _rendered(text, name)
        return cls(**given)

    def rendered(self, render: Callable[[Any], Any]) -> Stream:
        """The same stream with its templates rendered."""
        return Stream.from_dict(render(self.as_dict())) if self.has_templates else self

    def but(self, **changes: Any) -> Stream:
        """A copy with some settings changed."""
        return replace(self, **changes)


def _normal(value: Any, name: str, kind: Kind) -> Any:
    """A value in the normal form of its kind, so that streams with the same settings are equal."""
    if kind is Kind.DURATION:
        return value if is_template(value) else to_timedelta(value, name, BadStream)
    if kind is Kind.TEXTS:
        return (value,) if isinstance(value, str) and value else tuple(value or ())
    if kind is Kind.MAPPING:
        return _mapping(value, name)
    if kind is Kind.OFFSETS:
        # JSON has only texts as names, so partitions are texts here too: a stream must be the same after a trigger has stored it.
        return {topic: _named_by_text(partitions) for topic, partitions in _mapping(value, name).items()}
    return value


def _mapping(value: Any, name: str) -> dict[str, Any]:
    try:
        return dict(value or {})
    except (TypeError, ValueError):
        raise BadStream(f"Stream({name}=...) must be a mapping, not of type {type(value).__name__}.") from None


def _named_by_text(value: Any) -> Any:
    return {str(name): inner for name, inner in value.items()} if isinstance(value, Mapping) else value


def _as_json(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, RestartStrategy):
        return value.as_dict()
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _rendered(text: str, name: str) -> Any:
    try:
        return number_or_switch(text)
    except ValueError:
        raise BadStream(f"Stream({name}=...) rendered to {text!r}, which is no whole number.") from None
