"""The settings that a Kafka connection may have, with librdkafka's names, as in Airflow's `kafka` connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: librdkafka settings.
Kafka = Mapping[str, Any]

#: The same name and meaning in librdkafka and in Kafka's Java client.
SHARED = {
    "bootstrap.servers",
    "client.id",
    "client.rack",
    "security.protocol",
    "connections.max.idle.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
    "metadata.max.age.ms",
    "sasl.kerberos.min.time.before.relogin",
}
#: Have another name in Java: see `java_settings` and `java_sasl`.
MAPPED = {
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.kerberos.kinit.cmd",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
}
#: Have no meaning for a Java consumer: tuning of producers, and librdkafka's own queues and logs.
CLIENT_ONLY_PREFIXES = (
    "queue.",
    "queued.",
    "topic.",
    "log.",
    "statistics.",
    "linger.",
    "batch.",
    "message.",
    "compression.",
)
CLIENT_ONLY = {
    "acks",
    "api.version.request",
    "broker.address.family",
    "debug",
    "enable.idempotence",
    "group.id",
    "auto.offset.reset",
    "enable.auto.commit",
    "isolation.level",
    "partitioner",
    "session.timeout.ms",
    "socket.keepalive.enable",
    "socket.timeout.ms",
    "sticky.partitioning.linger.ms",
    "transaction.timeout.ms",
    "transactional.id",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "retries",
    "delivery.timeout.ms",
    "request.required.acks",
    "request.timeout.ms",  # librdkafka: how long the broker waits for its replicas; Java: how long the client waits
}
#: Settings that are for consumers only; a producer would log a warning about each of them.
CONSUMER_ONLY = {"group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level", "session.timeout.ms"}


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for confluent-kafka, the same for producer, consumer and admin client."""
    return {name: value for name, value in kafka.items() if name not in CONSUMER_ONLY}
