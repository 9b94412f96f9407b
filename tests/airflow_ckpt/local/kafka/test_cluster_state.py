from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local.kafka import cluster_state
from airflow_ckpt.local.kafka.broker_settings import server_properties
from airflow_ckpt.local.processes.ports import can_bind, free_port
from airflow_ckpt.local.processes.process_id import ProcessId

pytestmark = pytest.mark.unit


def test_the_usual_ports_are_taken_if_they_are_free():
    base = next(base for base in iter(free_port, None) if can_bind(base + 1) and can_bind(base + 2))
    node = cluster_state.new_cluster(1, sasl_ssl=True, base_port=base).node(1)
    assert node.ports == (base, base + 1, base + 2)


def test_other_ports_are_chosen_where_the_usual_ones_are_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        base = taken.getsockname()[1]
        cluster = cluster_state.new_cluster(3, sasl_ssl=True, base_port=base)
    ports = [port for node in cluster.nodes for port in node.ports]
    assert base not in ports
    assert len(set(ports)) == 9


def test_a_cluster_is_remembered_as_it_was(tmp_path):
    cluster = cluster_state.new_cluster(3, sasl_ssl=False, base_port=free_port())
    cluster = cluster.with_node(
        replace(cluster.node(2), formatted=True, process=ProcessId(12, "this life of the machine", 3.5))
    )
    cluster_state.save(cluster, tmp_path / "cluster.json")
    assert cluster_state.load(tmp_path / "cluster.json") == cluster


def test_no_file_means_no_cluster_and_a_damaged_one_is_an_error(tmp_path):
    assert cluster_state.load(tmp_path / "cluster.json") is None
    (tmp_path / "cluster.json").write_text('{"nodes": ')
    with pytest.raises(StackError, match="is damaged"):
        cluster_state.load(tmp_path / "cluster.json")


def test_a_node_that_does_not_exist_is_refused():
    cluster = cluster_state.new_cluster(1, sasl_ssl=False, base_port=free_port())
    with pytest.raises(StackError, match=r"node 2\b.*\b1 to 1\b"):
        cluster.node(2)


@pytest.mark.parametrize(("brokers", "in_sync"), [(1, "1"), (3, "2")])
def test_every_record_is_on_every_broker_and_of_three_one_may_die(tmp_path, brokers, in_sync):
    cluster = cluster_state.new_cluster(brokers, sasl_ssl=False, base_port=free_port())
    lines = server_properties(cluster.node(1), cluster, tmp_path, None).splitlines()
    for topics in ("offsets.topic", "transaction.state.log", "default"):
        assert f"{topics}.replication.factor={brokers}" in lines
    assert f"transaction.state.log.min.isr={in_sync}" in lines
    assert f"min.insync.replicas={in_sync}" in lines


def test_a_broker_listens_on_this_machine_only(tmp_path):
    cluster = cluster_state.new_cluster(3, sasl_ssl=True, base_port=free_port())
    lines = server_properties(cluster.node(1), cluster, tmp_path, None).splitlines()
    (listeners,) = (line.split("=")[1].split(",") for line in lines if line.startswith("listeners="))
    assert len(listeners) == 3
    assert all("://127.0.0.1:" in listener for listener in listeners)
