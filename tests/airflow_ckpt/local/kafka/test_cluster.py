from __future__ import annotations

import json
import os
import re
import socket
import sys

import pytest
from confluent_kafka.admin import AdminClient

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.processes.ports import can_bind, free_port
from tests.support.breakable_kafka import BreakableKafka
from tests.support.kafka_io import create_topic, produce, read_all

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory):
    """A cluster that the tests of this file may start, stop and damage."""
    cluster = BreakableKafka(tmp_path_factory.mktemp("own"), base_port=free_port())
    yield cluster
    cluster.stop()


@pytest.fixture
def up(own_cluster):
    """The same, running."""
    own_cluster.start()
    return own_cluster


@pytest.fixture
def down(own_cluster):
    """The same, stopped after it ran."""
    if not own_cluster.status()["nodes"]:
        own_cluster.start()
    own_cluster.stop()
    return own_cluster


def pids(cluster: BreakableKafka) -> list[int]:
    return [node["pid"] for node in cluster.status()["nodes"]]


def test_before_the_first_start_nothing_runs_and_nothing_is_written(tmp_path):
    cluster = BreakableKafka(tmp_path / "never")
    assert cluster.status() == {"running": False, "bootstrap": None, "sasl_bootstrap": None, "nodes": []}
    cluster.stop()
    with pytest.raises(StackError) as refused:
        _ = cluster.bootstrap
    assert refused.value.kind == "not_made"
    assert not (tmp_path / "never").exists()


def test_a_started_broker_answers_and_its_status_can_be_written_as_json(up):
    status = json.loads(json.dumps(up.status()))
    assert status["running"]
    (node,) = status["nodes"]
    assert node["alive"]
    assert node["answering"]
    assert up.bootstrap == f"127.0.0.1:{node['port']}"
    assert set(AdminClient(up.client_config()).list_topics(timeout=10).brokers) == {1}


def test_starting_again_leaves_the_running_broker_alone(up):
    before = pids(up)
    up.start()
    assert pids(up) == before


def test_a_topic_is_not_created_by_writing_to_it(up):
    # Without patience for topics that were just created, so that the error comes at once.
    config = {**up.client_config(), "topic.metadata.propagation.max.ms": 0}
    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
        produce(config, "never-created", [("k", "v")])
    assert "never-created" not in AdminClient(up.client_config()).list_topics(timeout=10).topics


def test_another_object_on_the_folder_controls_the_cluster_and_a_restart_keeps_ports_and_data(up):
    topic = create_topic(up.client_config(), "kept")
    produce(up.client_config(), topic, [("k", "v")])
    address = up.bootstrap

    other = BreakableKafka(up.home)
    assert pids(other) == pids(up)
    other.stop()
    (node,) = up.status()["nodes"]
    assert (node["alive"], node["answering"]) == (False, False)
    assert can_bind(node["port"])

    up.start()
    assert other.bootstrap == address
    assert [record.value for record in read_all(other.client_config(), topic)] == [b"v"]


def test_a_port_that_was_taken_meanwhile_is_named_with_its_owner(down):
    port = int(down.bootstrap.rpartition(":")[2])
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        # Elsewhere than on Linux only root may see who it is.
        owner = rf".*\(pid {os.getpid()}\)" if sys.platform == "linux" else ""
        with pytest.raises(StackError, match=rf"\b{port}\b.*node 1\b{owner}"):
            down.start()
    assert not down.status()["nodes"][0]["alive"]


def test_a_broker_that_cannot_start_is_reported_with_the_end_of_its_log_and_leaves_nothing_running(down):
    identity = down.home / "node-1" / "data" / "meta.properties"
    intact = identity.read_text()
    identity.write_text(re.sub("node.id=1", "node.id=7", intact))
    try:
        with pytest.raises(StackError, match=r"(?s)node 1\b.*server\.log:\n.*node") as e:
            down.start()
    finally:
        identity.write_text(intact)
    assert e.value.kind == "node_ended"
    assert "7" in str(e.value)
    assert pids(down) == [None]
    assert can_bind(int(down.bootstrap.rpartition(":")[2]))


def test_the_number_of_brokers_cannot_change_silently(down):
    for changed in ({"brokers": 3}, {"sasl_ssl": True}):
        with pytest.raises(StackError, match=f"rm -r {down.home}") as refused:
            BreakableKafka(down.home, **changed).start()
        assert refused.value.kind == "other_cluster"


def test_a_broker_that_does_not_run_cannot_be_killed(down):
    with pytest.raises(StackError, match=r"node 1\b.*start_node\(1\)"):
        down.kill(1)


def test_a_cluster_without_sasl_ssl_says_so(down):
    with pytest.raises(StackError, match="sasl_ssl=True") as refused:
        down.client_config(secure=True)
    assert refused.value.kind == "no_sasl_ssl"


def test_a_first_start_that_fails_leaves_the_next_one_free_to_choose_its_ports(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    cluster = BreakableKafka(tmp_path / "new", base_port=free_port())
    with pytest.raises(StackError, match="JAVA_HOME"):
        cluster.start()
    assert cluster.status()["nodes"] == []
