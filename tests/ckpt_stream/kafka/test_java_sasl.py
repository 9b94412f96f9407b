"""SASL for Kafka's Java client: each mechanism, property by property."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ckpt_stream.errors import ConfigError
from tests.ckpt_stream.kafka.samples import java

pytestmark = pytest.mark.unit

KEYTAB = {"sasl.kerberos.keytab": "/etc/app.keytab", "sasl.kerberos.principal": "app@EXAMPLE.ORG"}
OIDC = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "app",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
}


def sasl(**settings: Any) -> dict[str, str]:
    return java("SASL_PLAINTEXT", **{name.replace(".", "__"): value for name, value in settings.items()})


def test_plain_has_user_and_password_in_its_jaas_line() -> None:
    assert sasl(**{"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": "hunter2"}) == {
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="hunter2";'
        ),
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "scram-sha-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_scram_is_known_under_both_of_librdkafkas_names(mechanism: str, name: str) -> None:
    assert sasl(**{name: mechanism, "sasl.username": "app", "sasl.password": "hunter2"}) == {
        "sasl.mechanism": mechanism.upper(),
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="app" password="hunter2";'
        ),
    }


def read_back(quoted: str) -> str:
    """A quoted text as Java's StreamTokenizer, which reads JAAS lines, understands it."""
    assert "\n" not in quoted
    assert "\r" not in quoted
    escapes = {"n": "\n", "r": "\r"}
    return re.sub(r"\\(.)", lambda found: escapes.get(found.group(1), found.group(1)), quoted)


@pytest.mark.parametrize("password", ['a"b', "a\\b", '\\"', "a;b", 'x" admin="true', "end\\", "a\nb", "a\r\n", "pä ß'"])
def test_a_password_with_any_characters_reaches_java_unchanged(password: str) -> None:
    line = sasl(**{"sasl.mechanism": "PLAIN", "sasl.username": "app", "sasl.password": password})["sasl.jaas.config"]
    found = re.fullmatch(r'\S+ required username="app" password="((?:[^"\\]|\\.)*)";', line)
    assert found is not None, line
    assert read_back(found.group(1)) == password


def test_oauth_has_client_credentials_in_its_jaas_line() -> None:
    extra = {"sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "logicalCluster=a, identityPoolId=b=c"}
    assert sasl(**OIDC, **extra) == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://id.example.org/token",
        # This class is in Kafka 3.9 and in 4.x; the one in the package `secured` is not.
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="app" clientSecret="hunter2" scope="kafka" '
            'extension_logicalCluster="a" extension_identityPoolId="b=c";'
        ),
    }


def test_oauth_without_scope_and_extensions_names_neither() -> None:
    assert sasl(**OIDC)["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="app" clientSecret="hunter2";'
    )


@pytest.mark.parametrize("method", [None, "default"])
def test_oauth_without_client_credentials_is_refused(method: str | None) -> None:
    settings = {**OIDC, "sasl.oauthbearer.method": method} if method else {"sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.method=oidc"):
        sasl(**settings)


def test_kerberos_has_its_keytab_in_its_jaas_line() -> None:
    assert sasl(**{"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "broker"}, **KEYTAB) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "broker",
        "sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            'keyTab="/etc/app.keytab" principal="app@EXAMPLE.ORG";'
        ),
    }


def test_without_a_mechanism_it_is_kerberos_as_in_librdkafka() -> None:
    mapped = sasl(**KEYTAB)
    assert (mapped["sasl.mechanism"], mapped["sasl.kerberos.service.name"]) == ("GSSAPI", "kafka")


@pytest.mark.parametrize(
    ("settings", "mechanism", "missing"),
    [
        ({"sasl.mechanism": "PLAIN"}, "PLAIN", ["sasl.username", "sasl.password"]),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "u"}, "SCRAM-SHA-256", ["sasl.password"]),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "", "sasl.password": "p"}, "PLAIN", ["sasl.username"]),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI", ["sasl.kerberos.keytab", "sasl.kerberos.principal"]),
        ({**OIDC, "sasl.oauthbearer.client.secret": ""}, "OAUTHBEARER", ["sasl.oauthbearer.client.secret"]),
    ],
)
def test_a_setting_that_a_mechanism_needs_and_lacks_is_named(
    settings: dict[str, str], mechanism: str, missing: list[str]
) -> None:
    with pytest.raises(ConfigError, match=mechanism) as refused:
        sasl(**settings)
    assert re.findall(r"sasl\.(?!mechanism\b)[a-z.]*[a-z]", str(refused.value)) == missing
