"""A connection's settings as Kafka's Java client gets them."""

from __future__ import annotations

from typing import Any

from ckpt_stream.kafka.java_settings import java_settings

SERVERS = {"bootstrap.servers": "broker:9093"}


def java(protocol: str, **settings: Any) -> dict[str, str]:
    """The Java settings without the two that every case has."""
    named = {name.replace("__", "."): value for name, value in settings.items()}
    mapped = java_settings({**SERVERS, "security.protocol": protocol, **named})
    assert mapped.pop("bootstrap.servers") == "broker:9093"
    assert mapped.pop("security.protocol") == protocol.upper()
    return mapped
