"""A Kafka in memory: topics, transactions, and the three clients of confluent-kafka as far as this project uses them.

The clients answer at once. A test makes a call fail with `broker.fail("list_offsets", kafka_error("NOT_COORDINATOR"))`.
"""

from tests.support.fake_kafka.broker import FakeBroker, FakePartition, FakeTopic
from tests.support.fake_kafka.errors import kafka_error

__all__ = ["FakeBroker", "FakePartition", "FakeTopic", "kafka_error"]
