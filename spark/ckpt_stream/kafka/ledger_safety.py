"""The settings of a new ledger topic, and what makes an existing one unsafe: it must survive all that the sink survives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckpt_stream.errors import UnsafeLedger

#: Replicas of a new ledger, as far as there are brokers: Kafka's own default for what must not be lost.
REPLICAS = 3
#: Kafka compacts only segments that it no longer writes to. Small segments keep short what a reader must pass over: the
#: records of an hour or 16 MB, instead of the broker's default of a week or a gigabyte.
_COMPACTION = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.ms": str(60 * 60 * 1000),
    "segment.bytes": str(16 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
POLICY, IN_SYNC, UNCLEAN = "cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable"
RETENTION = ("retention.ms", "retention.bytes")


@dataclass(frozen=True)
class Durability:
    """What decides whether a topic keeps its records."""

    topic: str
    #: The brokers of each partition.
    replicas: tuple[tuple[int, ...], ...]
    #: Its configuration; None when this user may not see it.
    settings: Mapping[str, str] | None
    #: Partitions with a replica that lacks records: its broker is down, or a reassignment is adding it in place of another.
    incomplete: frozenset[int] = frozenset()

    @property
    def fewest_replicas(self) -> int:
        return min(map(len, self.replicas), default=1)

    @property
    def complete(self) -> tuple[tuple[int, ...], ...]:
        """The brokers of the complete partitions: one that is being reassigned lists old and new brokers at once."""
        return tuple(brokers for number, brokers in enumerate(self.replicas) if number not in self.incomplete)

    @property
    def in_sync(self) -> int:
        """How many replicas have every acknowledged record."""
        return int((self.settings or {}).get(IN_SYNC, "1"))


def replicas_of_new(sink: Durability, brokers: int) -> int:
    return max(sink.fewest_replicas, min(REPLICAS, brokers))


def settings_of_new(sink: Durability, replicas: int) -> dict[str, str]:
    """At least as safe as the sink. Of two replicas one may be down, unless the sink requires both."""
    in_sync = max(sink.in_sync, 2 if replicas >= REPLICAS else 1)
    return {**_COMPACTION, IN_SYNC: str(min(in_sync, replicas)), UNCLEAN: "false"}


def refuse_unsafe_ledger(ledger: Durability, sink: Durability) -> None:
    """Raise the refusal that names everything that is wrong with the ledger topic, with the commands that repair it."""
    faults = list(_faults(ledger, sink))
    if faults:
        raise UnsafeLedger(
            f"The ledger topic {ledger.topic} {'; '.join(what for what, _ in faults)}.",
            "It may forget batches that are in the sink: they would be written twice, or the stream could not go on.",
            f"run {' and '.join(dict.fromkeys(command for _, command in faults))}.",
        )


def _faults(ledger: Durability, sink: Durability) -> Iterator[tuple[str, str]]:
    """What is wrong, each with the command that repairs it."""
    as_sink = min(sink.complete, key=len, default=())
    if ledger.fewest_replicas < len(as_sink):
        yield (
            f"has {ledger.fewest_replicas} replica(s), the sink {sink.topic} has {len(as_sink)}",
            _reassign(ledger, as_sink),
        )
    if ledger.settings is None:
        return
    repairs: dict[str, str] = {}
    found: list[str] = []
    policies = {policy.strip() for policy in ledger.settings.get(POLICY, "").split(",")}
    if "compact" not in policies:
        found.append(f"has {POLICY}={ledger.settings.get(POLICY)} and so is not compacted")
        repairs[POLICY] = "compact"
    elif "delete" in policies:
        for name in RETENTION:
            if (kept := ledger.settings.get(name, "-1")) != "-1":
                found.append(f"has {POLICY}={ledger.settings[POLICY]} with {name}={kept}, which deletes batches")
                repairs[POLICY] = "compact"
    wanted_in_sync = min(sink.in_sync, max(ledger.fewest_replicas, len(as_sink)))
    if ledger.in_sync < wanted_in_sync:
        found.append(f"has {IN_SYNC}={ledger.in_sync}, the sink {sink.topic} has {sink.in_sync}")
        repairs[IN_SYNC] = str(wanted_in_sync)
    if ledger.settings.get(UNCLEAN) == "true" and (sink.settings or {}).get(UNCLEAN) != "true":
        found.append(f"has {UNCLEAN}=true, so that a replica that lacks batches may become its leader")
        repairs[UNCLEAN] = "false"
    for what in found:
        yield what, _configure(ledger.topic, repairs)


def _configure(topic: str, settings: Mapping[str, str]) -> str:
    changes = ",".join(f"{name}={value}" for name, value in settings.items())
    return f"`kafka-configs.sh --bootstrap-server ... --alter --entity-type topics --entity-name {topic} --add-config {changes}`"


def _reassign(ledger: Durability, brokers: tuple[int, ...]) -> str:
    plan = {
        "version": 1,
        "partitions": [
            {"topic": ledger.topic, "partition": number, "replicas": list(brokers)}
            for number in range(len(ledger.replicas))
        ],
    }
    return (
        "`kafka-reassign-partitions.sh --bootstrap-server ... --execute --reassignment-json-file ledger.json` with "
        f"{json.dumps(plan, separators=(',', ':'))} in ledger.json"
    )
