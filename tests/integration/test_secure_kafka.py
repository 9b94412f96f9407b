"""A stream over SASL_SSL with SCRAM: its records, ledger and offset mirror; errors of a missing grant or a wrong password."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from airflow_ckpt.local.kafka.cluster import KafkaCluster
from ckpt_stream.errors import SinkRejected
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.protocol.deadline import Deadline
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.settings.input_names import SECRETS_ENVIRONMENT, SECRETS_FILE_ENVIRONMENT, SECRETS_PROPERTY
from ckpt_stream.protocol.settings.secret_names import is_secret
from tests.support.acls import Rule, allow, deny, rules
from tests.support.kafka_io import create_topic, group_offsets
from tests.support.streams import RUN_SECONDS, Running, StreamUnderTest, copy, numbered

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Make = Callable[..., StreamUnderTest]


@pytest.fixture
def secure_stream(kafka_secure: KafkaCluster, tmp_path: Path) -> Make:
    """Makes a stream that connects as `app` over SASL_SSL. The test itself looks through the plaintext listener."""
    plain = kafka_secure.client_config()
    public = {name: value for name, value in kafka_secure.client_config(secure=True).items() if not is_secret(name)}

    def make(application: str = "copy_topic", *, partitions: int = 1, **settings: Any) -> StreamUnderTest:
        source, sink = create_topic(plain, "source", partitions), create_topic(plain, "sink", partitions)
        return StreamUnderTest(application, tmp_path, plain, source, sink, {"kafka": public, **settings})

    return make


@pytest.fixture
def password(kafka_secure: KafkaCluster) -> str:
    return kafka_secure.client_config(secure=True)["sasl.password"]


@pytest.fixture
def secret_in_environment(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRETS_ENVIRONMENT, json.dumps({"sasl.password": password}))


def command_lines(running: Running) -> set[str]:
    """What the process list shows of the driver and all that it starts, until it ends.

    They share the driver's session. One that is just ending has no command line and hides none of the others.
    """
    seen: set[str] = set()
    session = running.process.pid
    deadline = Deadline.after(RUN_SECONDS)
    while running.process.poll() is None and not deadline.passed:
        for pid in psutil.pids():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(pid) == session:
                    seen.add(" ".join(psutil.Process(pid).cmdline()))
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(0.05)
    return seen


def test_every_record_arrives_once_over_sasl_ssl_and_the_password_appears_nowhere(
    secure_stream: Make, password: str, tmp_path: Path
) -> None:
    under_test = secure_stream(partitions=2, lanes=2, max_offsets_per_batch=100)
    under_test.feed(*numbered(300))
    properties = tmp_path / "secrets.properties"
    properties.touch(mode=0o600)
    properties.write_text(f"{SECRETS_PROPERTY} {json.dumps({'sasl.password': password})}\n")
    # Spark and the Java client say the most about their settings at this level.
    running = under_test.start(
        submit=["--properties-file", str(properties)],
        conf={"spark.log.level": "INFO"},
        env={"CKPT_SPARK_LOG_LEVEL": "INFO", SECRETS_FILE_ENVIRONMENT: str(properties)},
    )
    seen = command_lines(running)
    ended = running.wait()
    assert ended.code == 0, ended.log[-4000:]
    assert under_test.values() == numbered(300)
    assert sum(r.records for r in under_test.ledger()) == 300
    assert sum(group_offsets(under_test.kafka, under_test.name, under_test.source).values()) == 300

    assert "sasl.mechanism = SCRAM-SHA-512" in ended.log
    assert any("pyspark.daemon" in line for line in seen), "the Python workers were not looked at"
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in seen), "the JVM was not looked at"
    assert [line for line in seen if password in line] == []
    assert password not in ended.log
    assert not properties.exists(), "the driver has read its secrets and left the file in place"
    files = [file for file in under_test.checkpoint.rglob("*") if file.is_file()]
    assert any("_ckpt" in file.parts for file in files)
    assert [file for file in files if password.encode() in file.read_bytes()] == []


def failed(stream: StreamUnderTest, outcome: tuple[int, str], error: str, *words: str) -> None:
    stream.failed_for_good(outcome, error, *words)
    assert stream.committed() == []


@pytest.mark.timeout(120)
def test_a_wrong_password_ends_the_run_with_the_reason(
    spark: Any, secure_stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_test = secure_stream()
    under_test.feed("a")
    monkeypatch.setenv(SECRETS_ENVIRONMENT, json.dumps({"sasl.password": "wrong-and-secret"}))
    outcome = under_test.drive(spark, copy)
    failed(under_test, outcome, "SinkRejected", "check user and password")
    assert "wrong-and-secret" not in outcome[1]


def no_write_on(topic: str) -> list[Rule]:
    others = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    write = deny(ResourceType.TOPIC, topic, AclOperation.WRITE)
    return [write, *(allow(ResourceType.TOPIC, topic, other) for other in others)]


@pytest.mark.usefixtures("secret_in_environment")
@pytest.mark.parametrize("which", ["sink", "ledger"])
def test_the_error_of_a_user_who_may_not_write_names_the_grant(
    spark: Any, kafka_secure: KafkaCluster, secure_stream: Make, which: str
) -> None:
    under_test = secure_stream()
    under_test.feed("a")
    topic = under_test.sink if which == "sink" else ledger_topic(under_test.name)
    with rules(kafka_secure, *no_write_on(topic)):
        outcome = under_test.drive(spark, copy)
    failed(under_test, outcome, "SinkRejected", "TOPIC_AUTHORIZATION_FAILED", "WRITE on sink and ledger")
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["a"]


@pytest.mark.parametrize("records", [1, 3, 2000])
def test_the_error_names_the_reason_at_every_stage_of_sending(kafka_secure: KafkaCluster, records: int) -> None:
    """On their way to Kafka, waiting for it, or not handed over yet: librdkafka treats each in another way."""
    plain = kafka_secure.client_config()
    sink, ledger = create_topic(plain, "sink"), create_topic(plain, "ledger")

    def write(transaction: Transaction, records: int) -> None:
        for number in range(records):
            transaction.produce(sink, key=b"k", value=str(number).encode())
            time.sleep(0.00001)  # lets the answer come in between
        transaction.produce(ledger, key=b"k", value=b"v")
        transaction.flush()

    with rules(kafka_secure, *no_write_on(sink)):
        for _ in range(20):
            transaction = Transaction(kafka_secure.client_config(secure=True), sink, 10_000, sink)
            transaction.begin()
            with pytest.raises(SinkRejected, match=r"TOPIC_AUTHORIZATION_FAILED.*WRITE on sink and ledger"):
                write(transaction, records)
            transaction.abort()
            transaction.close()


@pytest.mark.usefixtures("secret_in_environment")
def test_the_error_of_a_user_who_may_not_use_the_transactional_id_names_the_grant(
    spark: Any, kafka_secure: KafkaCluster, secure_stream: Make
) -> None:
    under_test = secure_stream()
    under_test.feed("a")
    prefix = ResourcePatternType.PREFIXED
    with rules(kafka_secure, deny(ResourceType.TRANSACTIONAL_ID, under_test.name, AclOperation.WRITE, prefix)):
        outcome = under_test.drive(spark, copy)
    failed(
        under_test,
        outcome,
        "SinkRejected",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "transactional ids",
        under_test.name,
    )


@pytest.mark.usefixtures("secret_in_environment")
def test_the_error_of_a_user_who_may_not_read_the_group_names_the_grant(
    spark: Any, kafka_secure: KafkaCluster, secure_stream: Make
) -> None:
    under_test = secure_stream(start="group")
    under_test.feed("a")
    with rules(kafka_secure, deny(ResourceType.GROUP, under_test.name, AclOperation.READ)):
        outcome = under_test.drive(spark, copy)
    failed(under_test, outcome, "SinkRejected", "GROUP_AUTHORIZATION_FAILED", "READ on its consumer group")
    assert under_test.drive(spark, copy)[0] == 0
    assert under_test.values() == ["a"]
