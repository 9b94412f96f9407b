"""One set of librdkafka-style Kafka settings for two clients: confluent-kafka as it is, Spark's Java client mapped.

The Java client has other names for the same things, and a JAAS line where librdkafka has user and password. What has no
counterpart is an error with its name, never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ckpt_stream.errors import ConfigError

#: Parts of a name whose value must never be shown; Spark is given the same for what it shows itself.
SENSITIVE = (
    r"password|passwd|passphrase|secret|credential|jaas|token\b"
    # Of Kafka, HTTP and databases.
    r"|key[._-]?pem\b|keystore[._-]key\b|api[._-]?keys?\b|private[._-]?key|encryption[._-]?key\b|\bbearer\b(?![._-]auth)"
    r"|(?:^|[._-])pwd\b|user[._-]info\b|passcode"
    # Words that say so at the end of a name only: `cookie.max.age` and `authorization.manager` are ordinary settings.
    r"|(?<!single)(?<!multi)(?<!one)(?<!two)(?<!first)(?<!second)(?:^|[._-])pass$"
    r"|(?<!security)(?<!azure)(?:^|[._-])authorization$|cookies?$|basic[._-]?auth$|client[._-]?assertion$"
    r"|(?:^|[._-])(?:pat|jwt|sig)$|(?<!verify)(?<!check)(?<!method)(?<!type)(?:^|[._-])signature$"
    r"|(?:^|(?:access|auth|refresh|session|bearer|api|id|user)[._-]?)tokens$"
    r"|(?:signing|hmac|master|ssh|(?:^|[._-])app)[._-]?key$"
    # Of storage: S3's, Azure's and Google's, in the words of Hadoop, of fsspec and of their connection strings.
    r"|access[._-]?key|account[._-]?key\b|storage[._-]?key\b|shared[._-]?key|shared[._-]?access|connection[._-]?string"
    r"|\bsas\b(?![._-]?token)"
)
_SECRET = re.compile(SENSITIVE)
#: What such a part speaks of without being it: where the secret is, how one is got, of what kind it is.
_INNOCENT = re.compile(
    r"\.(?:file|path|location|dir|url|uri|endpoint|full\.uri|relative\.uri|provider|providers|source|class|mechanism|algorithm|type"
    r"|name|enabled|length|limit|count|size|bucket|timeout|interval|lifetime|expiry|ttl|ms|seconds|renewal|retry|refresh)\b"
)
#: Paths, commands and switches that have a word from above in their names.
_INNOCENT_ENDS = ("application.credentials", ".kinit.cmd", ".enabled")
#: What every shell sets: the working folder.
_INNOCENT_NAMES = ("PWD", "OLDPWD")

#: User and password in a URL, which may have a slash in it; host and port are not one.
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:(?!\d+(?:[/?#,]|$))[^\s@]+@")
#: As in a connection string, a query, or a Java property; `${...}` stands for a value that is elsewhere.
_ASSIGNMENT = re.compile(r"([\w.-]+)[\"']?\s*=(?!=)\s*(?!\$\{)[^\s;&,]")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

#: Same name and meaning in both clients.
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
#: Consumed below, or without meaning for a Java consumer (producer tuning, librdkafka's own queues and logs).
HANDLED = {
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
#: Settings of a Kafka connection that only a consumer takes; a producer would warn about each of them.
CONSUMER_ONLY = {"group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level", "session.timeout.ms"}

Reader = Callable[[str], str]

#: Where a new word begins in a name without separators: `accountKey`, `SASToken`.
_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def is_secret(name: str) -> bool:
    """Whether a setting of this name must never be shown, however it is spelt: `sasToken`, `SAS_TOKEN`, `fs.azure.sas...`."""
    if name in _INNOCENT_NAMES:
        return False
    words = re.sub(r"[^a-z0-9]+", ".", _BETWEEN_WORDS.sub(".", name).lower())
    if words.endswith(_INNOCENT_ENDS):
        return False
    return any(not _INNOCENT.match(words, _end_of_word(words, found.end())) for found in _SECRET.finditer(words))


def secret_in(value: str) -> str | None:
    """What in a value must never be shown, named without showing it: a URL with a password, `password=...`."""
    if _URL_WITH_PASSWORD.search(value):
        return "a password in a URL"
    names = (found.group(1).lstrip("-") for found in _ASSIGNMENT.finditer(value))
    return next((f"{name}=..." for name in names if is_secret(name)), None)


def _end_of_word(words: str, at: int) -> int:
    """`credential` was found in `credentials.provider`: what follows begins behind the whole word."""
    end = words.find(".", at)
    return len(words) if end < 0 else end


def client_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as confluent-kafka takes them, the same for producer, consumer and admin client."""
    return {name: value for name, value in kafka.items() if name not in CONSUMER_ONLY}


def java_settings(kafka: Mapping[str, Any], read_file: Reader | None = None) -> dict[str, str]:
    """The same settings for Kafka's Java client, without the ``kafka.`` that Spark's options put before each name."""
    for name in kafka:
        if name not in SHARED | HANDLED | CLIENT_ONLY and not name.startswith(CLIENT_ONLY_PREFIXES):
            raise ConfigError(
                f"The Kafka setting {name!r} cannot be carried over to Spark's Java client. Leave it out of the "
                "connection, or set its Java counterpart as `kafka.<name>` in the stream's source_options."
            )
    protocol = str(kafka.get("security.protocol", "PLAINTEXT")).upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol!r} is none of {', '.join(PROTOCOLS)}.")
    java = {name: str(value) for name, value in kafka.items() if name in SHARED}
    java["security.protocol"] = protocol
    if java.get("connections.max.idle.ms") == "0":
        java["connections.max.idle.ms"] = "-1"  # never: for librdkafka that is 0, for Java 0 means at once
    if protocol.endswith("SSL"):
        java.update(_ssl(kafka, read_file or _read_text))
    if protocol.startswith("SASL"):
        java.update(_sasl(kafka))
    return java


def _read_text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _ssl(kafka: Mapping[str, Any], read_file: Reader) -> dict[str, str]:
    java: dict[str, str] = {}
    if str(kafka.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        raise ConfigError(
            "enable.ssl.certificate.verification=false has no counterpart in Kafka's Java client, which always "
            "verifies. Give the broker's CA as ssl.ca.location instead."
        )
    identification = kafka.get("ssl.endpoint.identification.algorithm")
    if identification is not None:
        java["ssl.endpoint.identification.algorithm"] = (
            "" if str(identification).lower() == "none" else str(identification)
        )
    # librdkafka's "probe" is its own search for the system's certificates; Java has those of its runtime.
    known = {name: value for name, value in kafka.items() if (name, value) != ("ssl.ca.location", "probe")}
    if ca := _pem(known, "ssl.ca", read_file):
        java.update({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca})
    certificate = _pem(kafka, "ssl.certificate", read_file)
    key = _pem(kafka, "ssl.key", read_file)
    if bool(certificate) != bool(key):
        raise ConfigError("A client certificate needs both ssl.certificate.* and ssl.key.*; only one of them is given.")
    if certificate and key:
        if found := re.search(r"-BEGIN ((?!ENCRYPTED)\w+ PRIVATE KEY)-", key):
            raise ConfigError(
                f"The key in ssl.key.* is of the kind {found.group(1)!r}, which Kafka's Java client cannot read: it takes "
                "PKCS#8 only. Convert it with `openssl pkcs8 -topk8 -nocrypt -in <key> -out <new key>`."
            )
        java.update(
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
        )
        if "ssl.key.password" in kafka:
            java["ssl.key.password"] = str(kafka["ssl.key.password"])
    elif "ssl.keystore.location" in kafka:
        java.update({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(kafka["ssl.keystore.location"])})
        if "ssl.keystore.password" in kafka:
            java["ssl.keystore.password"] = str(kafka["ssl.keystore.password"])
    return java


def _pem(kafka: Mapping[str, Any], name: str, read_file: Reader) -> str | None:
    """The text as it is: Java's reader takes only the last certificate of a chain that was put into one line."""
    if text := kafka.get(f"{name}.pem"):
        return str(text)
    if path := kafka.get(f"{name}.location"):
        try:
            return read_file(str(path))
        except (OSError, ValueError) as e:
            raise ConfigError(f"{name}.location={str(path)!r} cannot be read as PEM: {e}.") from e
    return None


def _sasl(kafka: Mapping[str, Any]) -> dict[str, str]:
    mechanism = str(kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        raise ConfigError(f"sasl.mechanism={mechanism!r} is none of {', '.join(MECHANISMS)}.")
    java = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return java | _oauth(kafka)
    if mechanism == "GSSAPI":
        return java | _kerberos(kafka)
    user, password = _required(kafka, mechanism, "sasl.username", "sasl.password")
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    java["sasl.jaas.config"] = (
        f"org.apache.kafka.common.security.{module} required username={_quoted(user)} password={_quoted(password)};"
    )
    return java


def _oauth(kafka: Mapping[str, Any]) -> dict[str, str]:
    if str(kafka.get("sasl.oauthbearer.method", "default")).lower() != "oidc":
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER works here with client credentials only: set sasl.oauthbearer.method=oidc, "
            "client id, client secret and token endpoint."
        )
    client, secret, endpoint = _required(
        kafka,
        "OAUTHBEARER",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token.endpoint.url",
    )
    options = f"clientId={_quoted(client)} clientSecret={_quoted(secret)}"
    if scope := kafka.get("sasl.oauthbearer.scope"):
        options += f" scope={_quoted(str(scope))}"
    for pair in str(kafka.get("sasl.oauthbearer.extensions") or "").split(","):
        if pair:
            name, _, value = pair.partition("=")
            options += f" extension_{name.strip()}={_quoted(value.strip())}"
    return {
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.jaas.config": (
            f"org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {options};"
        ),
    }


def _kerberos(kafka: Mapping[str, Any]) -> dict[str, str]:
    keytab, principal = _required(kafka, "GSSAPI", "sasl.kerberos.keytab", "sasl.kerberos.principal")
    return {
        "sasl.kerberos.service.name": str(kafka.get("sasl.kerberos.service.name", "kafka")),
        "sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f"keyTab={_quoted(keytab)} principal={_quoted(principal)};"
        ),
    }


def _required(kafka: Mapping[str, Any], mechanism: str, *names: str) -> tuple[str, ...]:
    if missing := [name for name in names if not kafka.get(name)]:
        raise ConfigError(f"sasl.mechanism={mechanism} needs {' and '.join(missing)}.")
    return tuple(str(kafka[name]) for name in names)


def _quoted(text: str) -> str:
    """As Java's tokenizer of a JAAS line reads it back; it ends a text at the end of a line."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f'"{text}"'
