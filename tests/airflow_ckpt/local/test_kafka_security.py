from __future__ import annotations

import stat
import subprocess

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from airflow_ckpt.local.java import find_java
from airflow_ckpt.local.processes import wait_until
from tests.kafka_io import create_topic, produce, read_all

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

    def told() -> bool | None:
        producer.poll(0.1)
        return any(error is None or error.name() not in BROKEN for error in seen) or None

    wait_until(told, deadline_s=30, what="an error or an acknowledgement")
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
    admin = AdminClient(kafka_secure.client_config(secure=True, user="admin"))
    named = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:app", "*", AclOperation.WRITE)
    for future in admin.create_acls([AclBinding(*named, AclPermissionType.DENY)]).values():
        future.result(timeout=30)
    try:
        assert errors_of(kafka_secure.client_config(secure=True), topic) == {"TOPIC_AUTHORIZATION_FAILED"}
        assert errors_of(kafka_secure.client_config(secure=True, user="admin"), topic) == set()
    finally:
        for future in admin.delete_acls([AclBindingFilter(*named, AclPermissionType.DENY)]).values():
            future.result(timeout=30)


def test_passwords_and_keys_are_readable_by_the_owner_only(kafka_secure):
    security, node = kafka_secure.home / "security", kafka_secure.home / "node-1"
    for file in (security / "passwords.json", security / "server.pem", node / "server.properties", node / "server.log"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert not (node / "users.args").exists()


def test_java_trusts_the_ca_through_the_truststore(kafka_secure):
    argv = [find_java().resolve().with_name("keytool"), "-list", "-keystore", kafka_secure.truststore_path]
    listed = subprocess.run(
        [*argv, "-storepass", kafka_secure.truststore_password], capture_output=True, text=True, check=True
    )
    assert "trustedCertEntry" in listed.stdout
