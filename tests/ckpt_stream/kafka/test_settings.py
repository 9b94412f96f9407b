"""Which settings a connection may have, and what each client gets of them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ckpt_stream.errors import ConfigError
from ckpt_stream.kafka.java_sasl import MECHANISMS
from ckpt_stream.kafka.java_settings import PROTOCOLS, java_settings
from ckpt_stream.kafka.settings import CLIENT_ONLY, MAPPED, SHARED, client_settings
from ckpt_stream.protocol.settings.secret_names import is_secret
from tests.ckpt_stream.kafka.samples import SERVERS, java

pytestmark = pytest.mark.unit


def test_without_a_protocol_it_is_plaintext() -> None:
    assert java_settings(SERVERS) == {**SERVERS, "security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("written", [str.upper, str.lower])
def test_a_protocol_may_be_written_in_small_letters_as_librdkafka_allows(protocol: str, written: Any) -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    mapped = java_settings({**SERVERS, **settings, "security.protocol": written(protocol)})
    assert mapped["security.protocol"] == protocol
    assert ("sasl.jaas.config" in mapped) == protocol.startswith("SASL")


def test_settings_of_a_protocol_that_is_not_used_are_left_out() -> None:
    assert java("PLAINTEXT", ssl__ca__location="/nowhere", sasl__password="hunter2", sasl__mechanism="PLAIN") == {}


@pytest.mark.parametrize(
    "name", ["ssl.crl.location", "ssl.cipher.suites", "fetch.wait.max.ms", "made.up", "socket.timeout"]
)
def test_a_setting_without_counterpart_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(name))) as refusal:
        java_settings({**SERVERS, name: "hunter2"})
    assert "source_options" in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        ({"security.protocol": "TLS"}, PROTOCOLS),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "TLS"}, MECHANISMS),
    ],
)
def test_an_unknown_protocol_or_mechanism_is_refused_with_the_known_ones(
    settings: dict[str, str], known: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="'TLS'") as refused:
        java_settings({**SERVERS, **settings})
    assert [each for each in known if each not in str(refused.value)] == []


@pytest.mark.parametrize("name", sorted(SHARED - {"bootstrap.servers", "security.protocol"}))
def test_a_setting_of_both_clients_keeps_its_name_and_value(name: str) -> None:
    assert java_settings({**SERVERS, name: 5})[name] == "5"


def test_never_closing_idle_connections_is_zero_for_one_client_and_minus_one_for_the_other() -> None:
    assert java_settings({**SERVERS, "connections.max.idle.ms": 0})["connections.max.idle.ms"] == "-1"


@pytest.mark.parametrize("name", sorted(CLIENT_ONLY | {"linger.ms", "queue.buffering.max.kbytes", "compression.type"}))
def test_the_tuning_of_librdkafka_is_left_out(name: str) -> None:
    assert name not in java_settings({**SERVERS, name: "5"})


def test_no_setting_is_in_two_lists() -> None:
    assert not SHARED & MAPPED
    assert not SHARED & CLIENT_ONLY
    assert not MAPPED & CLIENT_ONLY


def test_librdkafka_gets_everything_but_what_only_a_consumer_takes() -> None:
    kafka = {**SERVERS, "group.id": "g", "auto.offset.reset": "latest", "sasl.password": "p", "linger.ms": 5}
    assert client_settings(kafka) == {**SERVERS, "sasl.password": "p", "linger.ms": 5}


def test_every_known_secret_of_the_mapping_is_kept_out_of_documents() -> None:
    sensitive = {
        "sasl.password",
        "sasl.oauthbearer.client.secret",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
    }
    assert {name for name in MAPPED if is_secret(name)} == sensitive
