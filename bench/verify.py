"""Verification at depth `sink` against a plain confluent-kafka consumer that only counts, in one run on the same topic."""

from __future__ import annotations

import resource
import time
from typing import Any

from airflow_ckpt.kafka.offsets import admin_client, ends_of
from airflow_ckpt.local.kafka import KafkaCluster
from airflow_ckpt.verify.sink_scan import AT_ONCE, Boundaries, reader_settings, scan
from bench.stack import fill, new_topic

#: Batches into which the topic is divided for the scan, as a ledger would.
BATCHES = 100


def plain_count(kafka: dict[str, Any], topic: str, ends: dict[int, int]) -> float:
    """Seconds to read the topic with the same client settings, counting only."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(reader_settings(kafka))
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, p, 0) for p in ends])
    wanted, seen = sum(ends.values()), 0
    while seen < wanted:
        seen += len(consumer.consume(AT_ONCE, 0.1))
    seconds = time.perf_counter() - begun
    consumer.close()
    return seconds


def rates(cluster: KafkaCluster, records: int, rounds: int, say: Any) -> dict[str, float]:
    """Records per second of both, the best of a few rounds taken in turn; and how memory grew from first to last scan."""
    kafka = cluster.client_config()
    topic = new_topic(cluster, "verify", 4)
    fill(cluster, topic, records)
    found = ends_of(admin_client(kafka), topic)
    if found is None:
        raise RuntimeError("the topic vanished")
    ends = dict(found.stable)
    boundaries = Boundaries(
        range(BATCHES), {p: [end * b // BATCHES for b in range(BATCHES)] for p, end in ends.items()}
    )
    plain = checked = float("inf")
    memory = []
    for number in range(rounds):
        plain = min(plain, plain_count(kafka, topic, ends))
        result = scan(kafka, topic, dict.fromkeys(ends, 0), ends, boundaries)
        if result.records != records:
            raise RuntimeError(f"the scan saw {result.records} of {records} records")
        checked = min(checked, result.seconds)
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        say(
            f"round {number + 1}: plain {records / plain:,.0f}/s, verified {records / checked:,.0f}/s, {memory[-1]:.0f} MB"
        )
    return {"plain": records / plain, "verify": records / checked, "memory_growth_mb": memory[-1] - memory[0]}
