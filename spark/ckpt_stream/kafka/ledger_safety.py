"""The settings of a new ledger topic, and the check of an existing ledger topic: it must be as durable as the sink."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckpt_stream.errors import UnsafeLedger

#: Replicas of a new ledger, if there are enough brokers: Kafka's default for its own topics with transactions and offsets.
REPLICAS = 3
#: Kafka compacts only segments that it no longer writes to. With small segments a reader has little to skip: at most the records
#: of an hour or 16 MB, instead of the broker's default of a week or a gigabyte.
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
    """The properties on which it depends whether a topic keeps its records."""

    topic: str
    #: The brokers of each partition.
    replicas: tuple[tuple[int, ...], ...]
    #: The topic's configuration; None if this user may not see it.
    settings: Mapping[str, str] | None
    #: Partitions with a replica that lacks records: its broker is down, or a reassignment is adding it in place of another.
    incomplete: frozenset[int] = frozenset()

    @property
    def fewest_replicas(self) -> int:
        return min(map(len, self.replicas), default=1)

    @property
    def complete(self) -> tuple[tuple[int, ...], ...]:
        """The brokers of the complete partitions. A partition that is being reassigned lists old and new brokers at once."""
        return tuple(brokers for number, brokers in enumerate(self.replicas) if number not in self.incomplete)

    @property
    def in_sync(self) -> int:
        """How many replicas must have a record before Kafka acknowledges it."""
        return int((self.settings or {}).get(IN_SYNC, "1"))


def replicas_of_new(sink: Durability, brokers: int) -> int:
    return max(sink.fewest_replicas, min(REPLICAS, brokers))


def settings_of_new(sink: Durability, replicas: int) -> dict[str, str]:
    """Settings at least as safe as those of the sink. Of two replicas one may be down, unless the sink requires both."""
    in_sync = max(sink.in_sync, 2 if replicas >= REPLICAS else 1)
    return {**_COMPACTION, IN_SYNC: str(min(in_sync, replicas)), UNCLEAN: "false"}


def refuse_unsafe_ledger(ledger: Durability, sink: Durability) -> None:
    """Raise the refusal that names every fault of the ledger topic, with the commands that repair it."""
    faults = list(_faults(ledger, sink))
    if faults:
        raise UnsafeLedger(
            f"The ledger topic {ledger.topic} {'; '.join(what for what, _ in faults)}.",
            "It may lose batches that are in the sink: they would be written twice, or the stream could not continue.",
            f"run {' and '.join(dict.fromkeys(command for _, command in faults))}.",
        )


def _faults(ledger: Durability, sink: Durability) -> Iterator[tuple[str, str]]:
    """The faults, each with the command that repairs it."""
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
