"""TLS for Kafka's Java client: PEM texts instead of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ckpt_stream.errors import ConfigError
from ckpt_stream.kafka.java_settings import java_settings
from tests.ckpt_stream.kafka.samples import SERVERS, java

pytestmark = pytest.mark.unit

CA = "-----BEGIN CERTIFICATE-----\nQ0E=\n-----END CERTIFICATE-----\n"
CHAIN = CA + "-----BEGIN CERTIFICATE-----\nSU5URVI=\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nS0VZ\n-----END PRIVATE KEY-----\n"


def test_the_certificates_of_the_broker_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(CA)
    assert java("SSL", ssl__ca__location=str(file)) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA,
    }


def test_the_certificates_of_the_broker_come_as_text_which_wins_over_a_file() -> None:
    mapped = java("SSL", ssl__ca__pem=CA, ssl__ca__location="/nowhere")
    assert mapped == {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA}


def certificates_in(pem: str) -> list[str]:
    """What Kafka's Java client finds in a text, by the pattern of its DefaultSslEngineFactory."""
    end_of = r"-+%s\s*.*CERTIFICATE[^-]*-+\s+"
    pattern = end_of % "BEGIN" + r"(?:\s*[^\r\n]*:[^\r\n]*[\r\n]+)*([a-zA-Z0-9/+=\s]*)" + end_of % "END"
    return [re.sub(r"\s", "", found) for found in re.findall(pattern, pem + "\n")]


def test_every_certificate_of_a_bundle_reaches_the_java_client() -> None:
    assert certificates_in(java("SSL", ssl__ca__pem=CHAIN)["ssl.truststore.certificates"]) == ["Q0E=", "SU5URVI="]
    mapped = java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=KEY)
    assert certificates_in(mapped["ssl.keystore.certificate.chain"]) == ["Q0E=", "SU5URVI="]
    # In one line, as in a properties file, the pattern finds only the last one.
    assert certificates_in(CHAIN.replace("\n", " ")) == ["SU5URVI="]


def test_a_client_certificate_comes_from_files_or_as_text(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text(CHAIN)
    key.write_text(KEY)
    expected = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": CHAIN, "ssl.keystore.key": KEY}
    assert java("SSL", ssl__certificate__location=str(certificate), ssl__key__location=str(key)) == expected
    assert java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=KEY) == expected


def test_the_password_of_an_encrypted_key_is_passed_on() -> None:
    encrypted = KEY.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
    mapped = java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=encrypted, ssl__key__password="hunter2")
    assert mapped["ssl.key.password"] == "hunter2"
    assert mapped["ssl.keystore.key"] == encrypted


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "EC PRIVATE KEY"])
def test_a_key_that_java_cannot_read_is_refused_with_the_command_that_converts_it(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}.*openssl pkcs8 -topk8"):
        java("SSL", ssl__certificate__pem=CHAIN, ssl__key__pem=KEY.replace("PRIVATE KEY", kind))


def test_a_keystore_of_librdkafka_is_pkcs12() -> None:
    assert java("SSL", ssl__keystore__location="/etc/app.p12", ssl__keystore__password="hunter2") == {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "/etc/app.p12",
        "ssl.keystore.password": "hunter2",
    }


def test_a_keystore_without_a_password_has_none_in_java() -> None:
    mapped = java("SSL", ssl__keystore__location="/etc/app.p12")
    assert mapped == {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/etc/app.p12"}


def test_the_systems_own_certificates_are_those_of_the_java_runtime() -> None:
    assert java("SSL") == {}
    assert java("SSL", ssl__ca__location="probe") == {}


@pytest.mark.parametrize(("given", "mapped"), [("none", ""), ("https", "https")])
def test_host_name_verification_can_be_switched_off_in_both(given: str, mapped: str) -> None:
    settings = java("SSL", ssl__endpoint__identification__algorithm=given)
    assert settings == {"ssl.endpoint.identification.algorithm": mapped}


@pytest.mark.parametrize("value", ["false", "False", False])
def test_verification_switched_off_cannot_be_mapped(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"enable\.ssl\.certificate\.verification=false.*ssl\.ca\.location"):
        java("SSL", enable__ssl__certificate__verification=value)
    assert java("SSL", enable__ssl__certificate__verification="true") == {}


@pytest.mark.parametrize("half", [{"ssl__certificate__pem": CHAIN}, {"ssl__key__pem": KEY}])
def test_half_a_client_certificate_is_refused(half: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"both ssl\.certificate\.\* and ssl\.key\.\*"):
        java("SSL", **half)


@pytest.mark.parametrize("name", ["ssl.ca", "ssl.certificate", "ssl.key"])
def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path, name: str) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, binary):
        with pytest.raises(ConfigError, match=re.escape(f"{name}.location={str(path)!r}")):
            java("SSL", **{f"{name}.location": str(path)})


def test_a_caller_can_read_files_in_its_own_way() -> None:
    settings = {**SERVERS, "security.protocol": "SSL", "ssl.ca.location": "/far/away"}
    mapped = java_settings(settings, read_file=lambda path: f"read {path}")
    assert mapped["ssl.truststore.certificates"] == "read /far/away"
