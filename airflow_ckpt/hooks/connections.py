"""Reads Airflow's connections: Kafka settings, the Spark cluster, and the options of the checkpoint's storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_ckpt.exceptions import BadConnection
from airflow_ckpt.streams.stream import Stream


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
    """The settings of a stream's connections. They hold secrets: never log or store them."""

    kafka: Mapping[str, Any] = field(repr=False)
    spark: SparkTarget
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)


def names_of(stream: Stream) -> list[str]:
    """The connections that a stream needs."""
    return [c for c in (stream.kafka_conn_id, stream.spark_conn_id, stream.checkpoint_conn_id) if c]


def from_airflow(stream: Stream, found: Mapping[str, Any]) -> Connections:
    """Read Airflow's connection objects. Raises BadConnection for a connection that cannot be used."""
    return Connections(
        kafka=kafka_from_connection(found[stream.kafka_conn_id], stream.kafka_conn_id),
        spark=spark_target(found[stream.spark_conn_id], stream.spark_conn_id),
        storage=storage_options(found[stream.checkpoint_conn_id]) if stream.checkpoint_conn_id else {},
    )


def kafka_from_connection(connection: Any, conn_id: str) -> dict[str, Any]:
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
        # The host comes from a connection URI. Spark does not use it: it finds YARN's address in Hadoop's configuration.
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
    """The fsspec options of a connection: login and password as key and secret, and its extra field."""
    options = dict(connection.extra_dejson)
    if connection.login:
        options.setdefault("key", connection.login)
    if connection.password:
        options.setdefault("secret", connection.password)
    return options
