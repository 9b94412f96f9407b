"""Verification at depth `sink` against a plain confluent-kafka consumer that only counts, in one run on the same topic."""

from __future__ import annotations

import threading
import time
from typing import Any

import psutil

from airflow_ckpt.local.kafka.cluster import KafkaCluster
from airflow_ckpt.verify.scan.sink_scan import AT_ONCE, Boundaries, reader_settings, scan
from bench.broker_and_spark import fill, new_topic
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import topic_ends

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


class Memory:
    """The most memory that this process takes while it is watched, in MB."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        here = psutil.Process()
        while not self._over.wait(0.05):
            self.peak = max(self.peak, here.memory_info().rss / 2**20)


def rates(cluster: KafkaCluster, records: int, rounds: int, say: Any) -> dict[str, float]:
    """Records per second of both, the best of a few rounds taken in turn; and the memory for a part and for the whole."""
    kafka = cluster.client_config()
    topic = new_topic(cluster, "verify", 4)
    fill(cluster, topic, records)
    found = topic_ends(admin_client(kafka), topic)
    if found is None:
        raise RuntimeError("the topic vanished")
    ends = dict(found.stable)
    boundaries = Boundaries({p: [end * b // BATCHES for b in range(BATCHES)] for p, end in ends.items()})
    start = dict.fromkeys(ends, 0)
    with Memory() as part:
        scan(kafka, topic, start, {p: end // 2 for p, end in ends.items()}, boundaries)
    plain = checked = float("inf")
    for number in range(rounds):
        plain = min(plain, plain_count(kafka, topic, ends))
        with Memory() as whole:
            result = scan(kafka, topic, start, ends, boundaries)
        if result.records != records:
            raise RuntimeError(f"the scan saw {result.records} of {records} records")
        checked = min(checked, result.seconds)
        say(f"round {number + 1}: plain {records / plain:,.0f}/s, verified {records / checked:,.0f}/s")
    say(f"memory: {part.peak:.0f} MB for half of the records, {whole.peak:.0f} MB for all")
    return {"plain": records / plain, "verify": records / checked, "memory_growth_mb": whole.peak - part.peak}
