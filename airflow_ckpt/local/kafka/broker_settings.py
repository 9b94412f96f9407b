"""Writes the settings of a broker for a laptop, with the durability of a production broker."""

from __future__ import annotations

from pathlib import Path

from airflow_ckpt.local.kafka.cluster_state import ClusterState, Node
from airflow_ckpt.local.kafka.security import Security

LOG4J = """status = ERROR
rootLogger.level = WARN
# While other nodes are down, a node would log that several times a second.
logger.network.name = org.apache.kafka.clients.NetworkClient
logger.network.level = ERROR
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
"""

# With these, a broker starts in seconds, and deletes and expires in seconds instead of minutes or hours.
_QUICK_REACTIONS = {
    # With the default of 50, the first transaction and the first consumer group would wait until 50 folders are created.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    # Expired records are deleted within seconds, so that a test can let retention delete unread records.
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    # How soon after its timeout a transaction is aborted.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # How long a killed broker stays the leader of its partitions, and cannot register again (default: 9 s). With less time, a
    # live broker on two busy cores would be removed too, because it misses heartbeats.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
}


def server_properties(node: Node, cluster: ClusterState, data: Path, security: Security | None) -> str:
    """The text of one node's server.properties."""
    settings = {
        **_identity(node, cluster, data),
        **durability(len(cluster.nodes)),
        **_QUICK_REACTIONS,
        **(security.server_settings() if security else {}),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _identity(node: Node, cluster: ClusterState, data: Path) -> dict[str, str]:
    listeners = [f"PLAINTEXT://127.0.0.1:{node.port}"]
    if node.sasl_port is not None:
        listeners.append(f"SASL_SSL://127.0.0.1:{node.sasl_port}")
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.number),
        "controller.quorum.voters": ",".join(
            f"{voter.number}@127.0.0.1:{voter.controller_port}" for voter in cluster.nodes
        ),
        "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{node.controller_port}"]),
        "advertised.listeners": ",".join(listeners),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
    }


def durability(brokers: int) -> dict[str, str]:
    """Every record is on every broker; one of three brokers may fail without a lost record or a refused write."""
    copies = str(brokers)
    in_sync = "2" if brokers >= 3 else "1"
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # A misspelt topic must be an error, not a new topic.
        "auto.create.topics.enable": "false",
    }
