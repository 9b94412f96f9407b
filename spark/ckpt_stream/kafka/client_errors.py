"""What each of Kafka's errors means for a stream, and what the user can do about it."""

from __future__ import annotations

from typing import Any

from ckpt_stream.errors import Fenced, SinkError, SinkRejected

#: Errors that a restart does not cure, each with what the user can do.
ADVICE = {
    "MSG_SIZE_TOO_LARGE": "a record is larger than the topic allows: raise max.message.bytes of the topic, or make the "
    "transform produce smaller records",
    "TOPIC_AUTHORIZATION_FAILED": "grant the stream's user READ on source and ledger, WRITE on sink and ledger",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant the stream's user WRITE and DESCRIBE on its transactional ids "
    "(prefix: the sink id)",
    "CLUSTER_AUTHORIZATION_FAILED": "grant the stream's user IDEMPOTENT_WRITE on the cluster",
    "GROUP_AUTHORIZATION_FAILED": "grant the stream's user READ on its consumer group",
    "SASL_AUTHENTICATION_FAILED": "check user and password of the Kafka connection",
    "_AUTHENTICATION": "check user and password of the Kafka connection",
    "UNKNOWN_TOPIC_OR_PART": "create the topic, or correct its name or the partition that the transform chose",
    "_UNKNOWN_TOPIC": "create the topic, or correct its name",
    "_UNKNOWN_PARTITION": "the transform chose a partition that the topic does not have",
    "INVALID_TRANSACTION_TIMEOUT": "transaction_timeout is above the broker's transaction.max.timeout.ms: lower one "
    "or raise the other",
    "INVALID_RECORD": "the broker refuses a record; a compacted topic, for example, refuses records without a key",
    "TOPIC_EXCEPTION": "choose a name that Kafka allows: at most 249 letters, digits and the characters . _ -",
    "INVALID_REPLICATION_FACTOR": "create the topic by hand with as many replicas as there are brokers",
    "POLICY_VIOLATION": "the cluster's policy forbids this record or topic",
}
#: Temporary errors: a leader or a coordinator moves, or a broker restarts.
TRANSIENT = (
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
    "_TRANSPORT",
    "_TIMED_OUT",
    "_WAIT_COORD",
    "_DESTROY_BROKER",
)
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def to_sink_error(exception: Any, action: str) -> SinkError:
    """Turn a KafkaException (or a KafkaError) into the error that says whether a restart helps, and what the user can do."""
    error = exception.args[0] if isinstance(exception, Exception) else exception
    name, text = error.name(), error.str()
    if name in FENCED:
        return Fenced(f"Kafka fenced the attempt to {action} ({name}).")
    if name in ADVICE:
        return SinkRejected(f"Kafka refuses to {action}: {text} ({name}). What helps: {ADVICE[name]}.")
    return SinkError(f"Kafka could not {action}: {text} ({name}).")
