"""Turns a lane's rows into Kafka records, in the order in which they come."""

from __future__ import annotations

from typing import Any

from ckpt_stream.driver.lane_spec import LaneSpec
from ckpt_stream.driver.lane_sums import LaneSums, column
from ckpt_stream.kafka.transaction import Transaction
from ckpt_stream.protocol.ledger.checksum import AUDIT_HEADER


def produce_rows(transaction: Transaction, spec: LaneSpec, lane: int, rows: Any, sums: LaneSums) -> None:
    """Produce one Arrow record batch of a lane, and add it to the lane's sums."""
    settings, topic = spec.settings, spec.settings.sink.topic
    next_number = {False: sums.records, True: sums.dead_letters}
    sums.add(rows)
    keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
    extras = [column(rows, name) for name in ("headers", "partition", "dead_letter")]
    if not settings.audit and all(extra is None for extra in extras):
        _produce_plain(transaction, topic, keys, values)
        return
    headers, partitions, dead = ([None] * len(keys) if extra is None else extra.to_pylist() for extra in extras)
    for i, (key, value) in enumerate(zip(keys, values, strict=True)):
        record: dict[str, Any] = {"key": key, "value": value}
        pairs = [(header["key"], header["value"]) for header in headers[i] or ()]
        if settings.audit:
            is_dead = bool(dead[i])
            pairs.append((AUDIT_HEADER, f"{spec.to_write.batch}/{lane}/{next_number[is_dead]}".encode()))
            next_number[is_dead] += 1
        if pairs:
            record["headers"] = pairs
        if dead[i]:
            transaction.produce(settings.dead_letter_topic or "", **record)
            continue
        if partitions[i] is not None:
            record["partition"] = partitions[i]
        transaction.produce(topic, **record)


def _produce_plain(transaction: Transaction, topic: str, keys: list[bytes | None], values: list[bytes | None]) -> None:
    """The fast path for records of key and value alone: about a microsecond per record."""
    from confluent_kafka import KafkaException

    produce = transaction.producer.produce
    for key, value in zip(keys, values, strict=True):
        try:
            produce(topic, value, key)
        except (BufferError, KafkaException):
            transaction.produce(topic, key=key, value=value)
