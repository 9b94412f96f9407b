"""Creates admin clients, and repeats a request to Kafka while the error is temporary."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ckpt_stream.kafka.client_errors import TRANSIENT
from ckpt_stream.protocol.deadline import Deadline

#: How long Kafka may take to answer.
ASK_SECONDS = 30.0
PAUSE_SECONDS = 0.1
#: Two names of one error: the broker's, and librdkafka's.
NO_SUCH_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")

T = TypeVar("T")


def admin_client(kafka: Mapping[str, Any], **settings: Any) -> Any:
    """An admin client that reconnects at once after it has lost a connection."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**kafka, "reconnect.backoff.ms": 10, **settings})


def retry_transient(ask: Callable[[], T], seconds: float = ASK_SECONDS, also: Sequence[str] = ()) -> T:
    """Repeat a request to Kafka while the error is temporary; ``also`` names further errors that count as temporary."""
    from confluent_kafka import KafkaException

    deadline = Deadline.after(seconds)
    while True:
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].name() not in (*TRANSIENT, *also) or deadline.passed:
                raise
            time.sleep(PAUSE_SECONDS)
