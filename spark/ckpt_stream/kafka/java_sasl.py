"""SASL for Kafka's Java client: makes a JAAS line from librdkafka's user, password, keytab or client secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt_stream.errors import ConfigError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")


def java_sasl(kafka: Mapping[str, Any]) -> dict[str, str]:
    """The Java settings for the connection's SASL mechanism."""
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
    """Quote a text for Java's tokenizer of JAAS lines, for which a line break would end the text."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, escaped)
    return f'"{text}"'
