from __future__ import annotations

import ipaddress
import stat
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AclOperation, ResourceType
from cryptography import x509

from airflow_ckpt.local.jars.stack_jars import kafka_broker_jars
from airflow_ckpt.local.processes.java import find_java
from tests.support.acls import deny, rules
from tests.support.kafka_io import create_topic, produce, read_all
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(kafka_secure):
    return create_topic(kafka_secure.client_config(), "secured")


#: A connection that broke: on a busy machine one may, before Kafka or the client has said what is wrong.
BROKEN = {"_TRANSPORT", "_ALL_BROKERS_DOWN"}


def errors_of(config, topic) -> set[str]:
    """The names of what goes wrong first when a client with this configuration writes a record; empty if it is written."""
    seen: list[KafkaError | None] = []
    producer = Producer({**config, "error_cb": seen.append, "log_level": 0})
    producer.produce(topic, b"v", on_delivery=lambda error, _: seen.append(error))

    def has_ended() -> bool:
        producer.poll(0.1)
        return any(error is None or error.name() not in BROKEN for error in seen)

    wait_for(has_ended, "an error or an acknowledgement", 30)
    producer.purge()
    return {error.name() for error in seen if error} - BROKEN


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("user", ["app", "admin"])
def test_a_user_writes_and_reads_over_sasl_ssl(kafka_secure, topic, mechanism, user):
    config = {**kafka_secure.client_config(secure=True, user=user), "sasl.mechanism": mechanism}
    produce(config, topic, [("k", user)])
    assert [record.value for record in read_all(config, topic)] == [user.encode()]


def test_a_wrong_password_is_refused(kafka_secure, topic):
    config = {**kafka_secure.client_config(secure=True), "sasl.password": "wrong"}
    assert "_AUTHENTICATION" in errors_of(config, topic)
    assert read_all(kafka_secure.client_config(), topic) == []


def test_a_client_without_the_ca_does_not_connect(kafka_secure, topic):
    config = kafka_secure.client_config(secure=True)
    del config["ssl.ca.location"]
    assert "_SSL" in errors_of(config, topic)
    assert read_all(kafka_secure.client_config(), topic) == []


def test_an_acl_can_shut_out_the_app_but_not_the_admin(kafka_secure, topic):
    with rules(kafka_secure, deny(ResourceType.TOPIC, topic, AclOperation.WRITE)):
        assert errors_of(kafka_secure.client_config(secure=True), topic) == {"TOPIC_AUTHORIZATION_FAILED"}
        assert errors_of(kafka_secure.client_config(secure=True, user="admin"), topic) == set()


def test_passwords_and_keys_are_readable_by_the_owner_only(kafka_secure):
    security, node = kafka_secure.home / "security", kafka_secure.home / "node-1"
    for file in (security / "passwords.json", security / "server.pem", node / "server.properties", node / "server.log"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert not (node / "users.args").exists()


def java_client(kafka_secure, tmp_path, **changes: str) -> subprocess.CompletedProcess[str]:
    """Kafka's own Java client asks the broker for its settings over SASL_SSL, as the user `admin`."""
    librdkafka = kafka_secure.client_config(secure=True, user="admin")
    login = f'username="{librdkafka["sasl.username"]}" password="{librdkafka["sasl.password"]}"'
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": librdkafka["sasl.mechanism"],
        "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": librdkafka["ssl.ca.location"],
        **changes,
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    argv = [find_java(), "-cp", f"{kafka_broker_jars()}/*", "kafka.admin.ConfigCommand", "--describe", "--all"]
    argv += ["--entity-type", "brokers", "--entity-name", "1", "--command-config", file]
    argv += ["--bootstrap-server", librdkafka["bootstrap.servers"]]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def test_a_java_client_trusts_the_ca(kafka_secure, tmp_path):
    done = java_client(kafka_secure, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "node.id=1" in done.stdout


def test_a_java_client_without_the_ca_does_not_connect(kafka_secure, tmp_path):
    import trustme

    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    done = java_client(kafka_secure, tmp_path, **{"ssl.truststore.location": str(other)})
    assert done.returncode != 0
    assert "SslAuthenticationException" in done.stdout + done.stderr


def test_the_address_of_the_broker_is_checked_against_its_certificate(kafka_secure):
    """Clients verify it by default; a certificate without the address would make every other test fail too."""
    (end,) = x509.load_pem_x509_certificates((kafka_secure.home / "security" / "server.pem").read_bytes())[:1]
    names = end.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_the_certificate_does_not_expire_while_a_stack_is_in_use(kafka_secure):
    for certificate in x509.load_pem_x509_certificates((kafka_secure.home / "security" / "server.pem").read_bytes()):
        assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=3650)
