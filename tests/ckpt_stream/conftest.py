"""A Kafka in memory for everything below."""

from tests.fixtures.fake_kafka import broker, clock

__all__ = ["broker", "clock"]
