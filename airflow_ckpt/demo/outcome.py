"""What came out: the sink counted by a plain consumer, without the stream's own bookkeeping."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from airflow_ckpt.kafka.offsets import admin_client, ends_of

READ_SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    """One sink, counted."""

    sink: str
    source_records: int
    sink_committed: int
    lost: int
    duplicated: int
    wrong: int
    aborted_hidden: int
    kills: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def count(
    kafka: Mapping[str, Any], topic: str, expected: Mapping[tuple[str, int], int], source_records: int, kills: int
) -> Outcome:
    """Compare every record a committed reader sees with the independent count."""
    seen: Counter[tuple[str, int]] = Counter()
    wrong = 0
    committed = read(kafka, topic, "read_committed")
    for value in committed:
        row = json.loads(value)
        start = int(datetime.fromisoformat(str(row["window_start"]).replace("Z", "+00:00")).timestamp())
        key = (str(row["ip"]), start)
        seen[key] += 1
        wrong += int(row["count"]) != expected.get(key)
    everything = len(read(kafka, topic, "read_uncommitted"))
    return Outcome(
        sink=topic,
        source_records=source_records,
        sink_committed=len(committed),
        lost=sum(key not in seen for key in expected),
        duplicated=sum(times - 1 for times in seen.values()),
        wrong=wrong,
        aborted_hidden=everything - len(committed),
        kills=kills,
    )


def read(kafka: Mapping[str, Any], topic: str, isolation: str) -> list[bytes]:
    """All values of a topic, as a reader of this isolation level sees them."""
    from confluent_kafka import Consumer, TopicPartition

    ends = ends_of(admin_client(kafka), topic)
    if ends is None:
        return []
    until = ends.stable if isolation == "read_committed" else ends.high
    wanted = {p: end for p, end in until.items() if end > ends.earliest[p]}
    values: list[bytes] = []
    consumer = Consumer(
        {**kafka, "group.id": "airflow-ckpt-demo", "enable.auto.commit": False, "isolation.level": isolation}
    )
    try:
        partitions = [TopicPartition(topic, p, ends.earliest[p]) for p in wanted]
        consumer.assign(partitions)
        while any(tp.offset < wanted[tp.partition] for tp in consumer.position(partitions)) or not values:
            if not wanted:
                break
            for message in consumer.consume(1000, timeout=1.0):
                if not message.error() and int(message.offset() or 0) < wanted[int(message.partition() or 0)]:
                    values.append(message.value() or b"{}")
    finally:
        consumer.close()
    return values
