"""Airflow's connections as values: Kafka settings, where Spark runs, and how the checkpoint's storage is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.streams.stream import Stream


class BadConnection(CkptError):
    """A connection is missing or cannot be used for a stream."""


class UnknownConnection(BadConnection):
    """A connection was not found. A triggerer says so too when whoever knows it does not answer."""


@dataclass(frozen=True)
class SparkTarget:
    """Where drivers run."""

    master: str
    deploy_mode: str
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def runner(self) -> str:
        if self.deploy_mode == "cluster":
            if self.master.startswith("yarn"):
                return "yarn"
            if self.master.startswith("k8s://"):
                return "kubernetes"
            raise BadConnection(
                f"The Spark connection has master {self.master!r} and deploy-mode cluster: Spark cannot run a Python driver "
                "in it. Set deploy-mode to client, or use YARN or Kubernetes."
            )
        return "process"


@dataclass(frozen=True)
class Connections:
    """What a stream's connections say. Holds secrets: never logged, never stored."""

    kafka: Mapping[str, Any] = field(repr=False)
    spark: SparkTarget
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)


def names_of(stream: Stream) -> list[str]:
    """The connections that a stream needs."""
    return [c for c in (stream.kafka_conn_id, stream.spark_conn_id, stream.checkpoint_conn_id) if c]


def from_airflow(stream: Stream, found: Mapping[str, Any]) -> Connections:
    """Turn Airflow's connection objects into values, or say what is wrong with one of them."""
    return Connections(
        kafka=kafka_settings(found[stream.kafka_conn_id], stream.kafka_conn_id),
        spark=spark_target(found[stream.spark_conn_id], stream.spark_conn_id),
        storage=storage_options(found[stream.checkpoint_conn_id]) if stream.checkpoint_conn_id else {},
    )


def kafka_settings(connection: Any, conn_id: str) -> dict[str, Any]:
    """The librdkafka settings of a `kafka` connection: its whole extra field."""
    if connection.conn_type != "kafka":
        raise BadConnection(
            f"The connection {conn_id!r} is of type {connection.conn_type!r}; a stream needs type 'kafka'."
        )
    settings = dict(connection.extra_dejson)
    if not settings.get("bootstrap.servers"):
        raise BadConnection(f"The extra field of connection {conn_id!r} lacks 'bootstrap.servers'.")
    return settings


def spark_target(connection: Any, conn_id: str) -> SparkTarget:
    """Master and deploy mode, by the rules of Airflow's Spark provider: a full URL in the host field, or host and port."""
    host, port = connection.host or "", connection.port
    if connection.conn_type == "spark" and host and ("://" in host or not port):
        master = host
    elif connection.conn_type == "yarn":
        # Out of a URI. Hadoop's configuration says where YARN is; Spark knows no address of it.
        master, port = "yarn", None
    elif connection.conn_type in ("spark", "k8s", "local"):
        master = f"{connection.conn_type}://{host}"
    else:
        raise BadConnection(
            f"The connection {conn_id!r} is of type {connection.conn_type!r}; a stream needs type 'spark'."
        )
    if port:
        master = f"{master}:{port}"
    if not master or master.endswith("://"):
        raise BadConnection(f"The connection {conn_id!r} has no host: write Spark's master there, such as `local[*]`.")
    extra = connection.extra_dejson
    return SparkTarget(master, str(extra.get("deploy-mode") or "client"), extra)


def storage_options(connection: Any) -> dict[str, Any]:
    """fsspec options out of a connection: login and password are key and secret, the extra field the rest."""
    options = dict(connection.extra_dejson)
    if connection.login:
        options.setdefault("key", connection.login)
    if connection.password:
        options.setdefault("secret", connection.password)
    return options
