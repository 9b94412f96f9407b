"""What a ledger topic must be like, beside the sink that it stands for."""

from __future__ import annotations

import re

import pytest

from ckpt_stream.errors import UnsafeLedger
from ckpt_stream.kafka.ledger_safety import Durability, refuse_unsafe_ledger, replicas_of_new, settings_of_new

pytestmark = pytest.mark.unit

GOOD = {
    "cleanup.policy": "compact",
    "retention.ms": "604800000",  # what a compacted topic has, and does not care about
    "retention.bytes": "-1",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}


def topic(name: str, replicas: int = 3, partitions: int = 2, **changes: str) -> Durability:
    settings = {**GOOD, **{setting.replace("_", "."): value for setting, value in changes.items()}}
    return Durability(name, (tuple(range(1, replicas + 1)),) * partitions, settings)


def refusal(ledger: Durability, sink: Durability) -> UnsafeLedger:
    with pytest.raises(UnsafeLedger) as refused:
        refuse_unsafe_ledger(ledger, sink)
    assert "orders.ledger" in refused.value.found
    assert "written twice" in refused.value.risk
    return refused.value


SINK = topic("orders", cleanup_policy="delete")


@pytest.mark.parametrize(
    "ledger",
    [
        topic("orders.ledger"),
        topic("orders.ledger", replicas=5, min_insync_replicas="3"),
        topic("orders.ledger", cleanup_policy="compact,delete", retention_ms="-1"),
    ],
)
def test_a_ledger_that_keeps_everything_as_safely_as_the_sink_is_accepted(ledger: Durability) -> None:
    refuse_unsafe_ledger(ledger, SINK)


@pytest.mark.parametrize(
    ("changes", "found", "helps"),
    [
        ({"cleanup_policy": "delete"}, "is not compacted", "cleanup.policy=compact"),
        ({"cleanup_policy": "delete", "retention_ms": "-1"}, "is not compacted", "cleanup.policy=compact"),
        ({"cleanup_policy": "compact,delete"}, "retention.ms=604800000", "cleanup.policy=compact"),
        ({"cleanup_policy": "delete, compact", "retention_ms": "-1", "retention_bytes": "9"}, "retention.bytes=9", "compact"),
        ({"min_insync_replicas": "1"}, "min.insync.replicas=1, the sink orders has 2", "min.insync.replicas=2"),
        ({"unclean_leader_election_enable": "true"}, "unclean", "unclean.leader.election.enable=false"),
    ],
)  # fmt: skip
def test_a_ledger_that_may_forget_is_refused_with_the_command_that_repairs_it(
    changes: dict[str, str], found: str, helps: str
) -> None:
    refused = refusal(topic("orders.ledger", **changes), SINK)
    assert found in refused.found
    assert "kafka-configs.sh" in refused.helps
    assert "--entity-name orders.ledger" in refused.helps
    assert helps in refused.helps


def test_everything_that_is_wrong_is_named_at_once_with_one_command_for_the_settings() -> None:
    ledger = topic("orders.ledger", cleanup_policy="delete", min_insync_replicas="1")
    refused = refusal(ledger, SINK)
    assert "not compacted" in refused.found
    assert "min.insync.replicas=1" in refused.found
    assert refused.helps.count("kafka-configs.sh") == 1
    assert "cleanup.policy=compact,min.insync.replicas=2" in refused.helps


def test_fewer_replicas_than_the_sinks_are_refused_with_a_plan_that_kafka_accepts() -> None:
    ledger = Durability("orders.ledger", ((1, 2, 3), (1,)), GOOD)
    refused = refusal(ledger, SINK)
    assert re.findall(r"\b(?:[0-9]+|orders)\b", refused.found.replace("orders.ledger", "")) == ["1", "orders", "3"]
    assert "kafka-reassign-partitions.sh" in refused.helps
    assert '{"topic":"orders.ledger","partition":1,"replicas":[1,2,3]}' in refused.helps


def test_a_ledger_on_one_broker_is_as_safe_as_a_sink_on_one_broker() -> None:
    refuse_unsafe_ledger(
        topic("orders.ledger", 1, min_insync_replicas="1"), topic("orders", 1, min_insync_replicas="1")
    )
    refuse_unsafe_ledger(
        topic("orders.ledger", 2, min_insync_replicas="1"), topic("orders", 2, min_insync_replicas="1")
    )


def test_a_ledger_need_not_have_more_replicas_in_sync_than_the_sink_has_replicas() -> None:
    """A sink that wants more of them takes no records; a ledger with the same setting would take none either."""
    refuse_unsafe_ledger(
        topic("orders.ledger", 2, min_insync_replicas="2"), topic("orders", 2, min_insync_replicas="3")
    )
    refusal(topic("orders.ledger", 2, min_insync_replicas="1"), topic("orders", 2, min_insync_replicas="3"))


def test_settings_that_may_not_be_seen_are_no_fault_and_the_replicas_still_count() -> None:
    hidden = Durability("orders.ledger", ((1, 2, 3),), None)
    refuse_unsafe_ledger(hidden, SINK)
    refuse_unsafe_ledger(topic("orders.ledger", min_insync_replicas="1"), Durability("orders", ((1, 2, 3),), None))
    refusal(Durability("orders.ledger", ((1,),), None), SINK)


@pytest.mark.parametrize(
    ("sink", "brokers", "replicas", "in_sync"),
    [
        (topic("orders", 1, min_insync_replicas="1"), 1, 1, "1"),
        # Of two brokers one may be away, as for the sink, unless the sink asks for both.
        (topic("orders", 2, min_insync_replicas="1"), 2, 2, "1"),
        (topic("orders", 2, min_insync_replicas="2"), 2, 2, "2"),
        (topic("orders", 1, min_insync_replicas="1"), 3, 3, "2"),
        (topic("orders", 3, min_insync_replicas="1"), 3, 3, "2"),
        (topic("orders", 5, min_insync_replicas="3"), 5, 5, "3"),
        (Durability("orders", ((1, 2, 3),), None), 3, 3, "2"),
        # A broker is away: Kafka says so, and no ledger is made that is less safe than the sink.
        (topic("orders", 3, min_insync_replicas="2"), 2, 3, "2"),
    ],
)
def test_a_new_ledger_is_at_least_as_safe_as_the_sink(
    sink: Durability, brokers: int, replicas: int, in_sync: str
) -> None:
    assert replicas_of_new(sink, brokers) == replicas
    settings = settings_of_new(sink, replicas)
    assert settings["min.insync.replicas"] == in_sync
    refuse_unsafe_ledger(Durability("orders.ledger", (tuple(range(1, replicas + 1)),), settings), sink)


def test_a_sink_that_is_being_reassigned_does_not_make_its_ledger_unsafe() -> None:
    old_and_new = (1, 2, 3, 4, 5, 6)
    moving = Durability("orders", (old_and_new, old_and_new), GOOD, frozenset({0, 1}))
    refuse_unsafe_ledger(topic("orders.ledger", 3), moving)
    one_by_one = Durability("orders", (old_and_new, (1, 2, 3)), GOOD, frozenset({0}))
    refuse_unsafe_ledger(topic("orders.ledger", 3), one_by_one)


def test_the_partitions_of_a_sink_that_do_not_move_still_say_how_many_replicas_there_should_be() -> None:
    moving = Durability("orders", ((1, 2, 3, 4, 5, 6), (1, 2, 3)), GOOD, frozenset({0}))
    found = refusal(topic("orders.ledger", 2), moving).found
    assert re.findall(r"\b(?:[0-9]+|orders)\b", found.replace("orders.ledger", "")) == ["2", "orders", "3"]


def test_a_ledger_may_have_unclean_elections_where_its_sink_has_them_too() -> None:
    unclean = {"unclean_leader_election_enable": "true"}
    refuse_unsafe_ledger(topic("orders.ledger", **unclean), topic("orders", **unclean))
    refusal(topic("orders.ledger", **unclean), Durability("orders", ((1, 2, 3),), None))
