"""Translates the settings of a Kafka connection for Spark's Java client: Java's names, and PEM texts in place of files.

A setting without a Java counterpart raises an error that names it. For SASL see `java_sasl`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ckpt_stream.errors import ConfigError
from ckpt_stream.kafka.java_sasl import java_sasl
from ckpt_stream.kafka.settings import CLIENT_ONLY, CLIENT_ONLY_PREFIXES, MAPPED, SHARED

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: Reads the text of a file.
Reader = Callable[[str], str]


def java_settings(kafka: Mapping[str, Any], read_file: Reader | None = None) -> dict[str, str]:
    """The same settings for Kafka's Java client, without the prefix ``kafka.`` of Spark's options."""
    for name in kafka:
        if name not in SHARED | MAPPED | CLIENT_ONLY and not name.startswith(CLIENT_ONLY_PREFIXES):
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
        java["connections.max.idle.ms"] = "-1"  # 0 means never for librdkafka, and at once for Java
    if protocol.endswith("SSL"):
        java.update(_ssl(kafka, read_file or _read_text))
    if protocol.startswith("SASL"):
        java.update(java_sasl(kafka))
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
    # librdkafka's "probe" searches for the system's certificates; Java uses those of its runtime.
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
    """The text with its line breaks: if a chain is in one line, Java's reader uses only the last certificate."""
    if text := kafka.get(f"{name}.pem"):
        return str(text)
    if path := kafka.get(f"{name}.location"):
        try:
            return read_file(str(path))
        except (OSError, ValueError) as e:
            raise ConfigError(f"{name}.location={str(path)!r} cannot be read as PEM: {e}.") from e
    return None
