"""The real Ivy and the real jars, in the cache that the whole test run shares."""

from __future__ import annotations

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.jars import stack_jars

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def resolved():
    """Both folders, downloaded if this machine never had them."""
    return stack_jars.kafka_broker_jars(), stack_jars.spark_kafka_jars()


@pytest.fixture
def no_network(resolved, tmp_path, monkeypatch):
    """Ivy settings that lead to a port without a server."""
    settings = tmp_path / "unreachable.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="nowhere"/><resolvers>'
        '<ibiblio name="nowhere" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("AIRFLOW_CKPT_IVY_SETTINGS", str(settings))


def artifacts(folder) -> set[str]:
    return {jar.name for jar in folder.glob("*.jar")}


def test_the_broker_folder_has_the_broker_and_its_logging_but_no_sources(resolved):
    broker, _ = resolved
    assert f"kafka_2.13-{stack_jars.KAFKA_VERSION}.jar" in artifacts(broker)
    assert f"log4j-slf4j-impl-{stack_jars.KAFKA_LOG4J_VERSION}.jar" in artifacts(broker)
    assert not [name for name in artifacts(broker) if "sources" in name or "javadoc" in name]


def test_the_connector_folder_has_only_what_pyspark_lacks(resolved):
    _, connector = resolved
    kinds = {name.rsplit("-", 1)[0] for name in artifacts(connector)}
    assert {"spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients"} <= kinds
    assert not artifacts(connector) & artifacts(stack_jars.pyspark_home() / "jars")


def test_once_resolved_no_network_is_needed(resolved, no_network):
    assert (stack_jars.kafka_broker_jars(), stack_jars.spark_kafka_jars()) == resolved


def test_the_same_without_a_cache_fails_at_once_and_says_why(no_network, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CKPT_CACHE", str(tmp_path / "empty"))
    with pytest.raises(StackError, match=r"cannot download org\.apache\.kafka:.*cannot reach 127\.0\.0\.1:9") as error:
        stack_jars.kafka_broker_jars()
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "empty").rglob("*.jar"))
