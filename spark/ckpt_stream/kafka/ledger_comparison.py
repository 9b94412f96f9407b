"""Reads ledger and checkpoint and compares them, without changing either."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ckpt_stream.errors import LedgerLost, LedgerUndecided
from ckpt_stream.kafka.lane_control import read_ledger_ends
from ckpt_stream.kafka.ledger_safety import Durability, refuse_unsafe_ledger
from ckpt_stream.kafka.topics import Topic, Topics
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint, read_intact_checkpoint
from ckpt_stream.protocol.checkpoint.newest_batches import MAX_LOOKS
from ckpt_stream.protocol.ledger.batch_to_write import SinkIdentity
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic
from ckpt_stream.protocol.ledger.reconciliation import Reconciliation, reconcile
from ckpt_stream.protocol.run_files.adoption import Adoption, read_adoption
from ckpt_stream.protocol.storage import ReadableFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LedgerAndCheckpoint:
    """A ledger and the checkpoint that it is compared with, as they were read."""

    checkpoint: IntactCheckpoint
    sink: Topic
    #: The name of the ledger topic, which does not exist before the first start.
    topic: str
    partitions: int
    adopted: Adoption | None
    #: The last record of every lane that the topic has a partition for.
    ledger: Sequence[LedgerRecord | None]
    #: The checkpoint did not change during the read and, if the caller waits for that, readers saw the whole ledger.
    conclusive: bool = True

    def last(self, lane: int) -> LedgerRecord | None:
        return self.ledger[lane] if lane < len(self.ledger) else None

    def read_again(
        self, files: ReadableFiles, topics: Topics, kafka: Mapping[str, Any], *, wait_until_readable: bool
    ) -> LedgerAndCheckpoint:
        """The ledger, read while the checkpoint did not change.

        A former driver that is about to end may still commit a batch and write it to the checkpoint: its ledger must not be
        compared with an older state of the checkpoint.
        """
        checkpoint = self.checkpoint
        for _ in range(MAX_LOOKS):
            conclusive = topics.wait_until_readable(self.topic) if wait_until_readable and self.partitions else True
            ledger = read_ledger_ends(kafka, self.topic, self.partitions)
            before, checkpoint = checkpoint, read_intact_checkpoint(files)
            if checkpoint == before:
                break
        else:
            conclusive = False
        adopted = read_adoption(files) if checkpoint.newest is not None else None
        return replace(self, checkpoint=checkpoint, ledger=ledger, adopted=adopted, conclusive=conclusive)

    def reconcile(self, identity: SinkIdentity, *, adopt_ledger: bool) -> Reconciliation:
        return reconcile(self.checkpoint, self.ledger, identity, self.adopted, adopt_ledger=adopt_ledger)


def read_ledger_and_checkpoint(
    files: ReadableFiles,
    topics: Topics,
    kafka: Mapping[str, Any],
    identity: SinkIdentity,
    *,
    adopt_ledger: bool,
    wait_until_readable: bool = False,
) -> LedgerAndCheckpoint:
    """Read the checkpoint first, then the ledger: so a batch that the checkpoint has as committed is in the ledger."""
    checkpoint = read_intact_checkpoint(files)
    name = ledger_topic(identity.sink_id)
    found = topics.find(name, expected=adopt_ledger or checkpoint.newest is not None)
    if checkpoint.newest is not None and found is None:
        raise LedgerLost(
            f"The ledger topic {name} does not exist, but the checkpoint is at batch {checkpoint.newest}.",
            "So it is unknown whether the newest batch is in the sink already: it might be written twice.",
            f"if the checkpoint is right, `airflow-ckpt ledger rebuild {identity.sink_id}` creates the ledger from it.",
        )
    sink = topics.get(identity.topic, "sink")
    if found is not None:
        _refuse_unsafe(*topics.durability(found, sink))
    seen = LedgerAndCheckpoint(checkpoint, sink, name, found.partitions if found else 0, None, ())
    return seen.read_again(files, topics, kafka, wait_until_readable=wait_until_readable)


def _refuse_unsafe(ledger: Durability, sink: Durability) -> None:
    # A stream with these rights may continue: if settings cannot be read, that does not mean that the ledger is unsafe.
    if unread := [each.topic for each in (ledger, sink) if each.settings is None]:
        log.warning(
            "The settings of %s cannot be read, so it was not checked that the ledger %s is compacted and as safe as the "
            "sink. What helps: grant the stream's user DescribeConfigs on them, e.g. `kafka-acls.sh --bootstrap-server ... "
            "--add --allow-principal User:... --operation DescribeConfigs --topic %s`",
            " and ".join(unread),
            ledger.topic,
            unread[0],
        )
    refuse_unsafe_ledger(ledger, sink)


def compare_ledger(
    files: ReadableFiles, topics: Topics, kafka: Mapping[str, Any], identity: SinkIdentity, *, adopt_ledger: bool
) -> Reconciliation:
    """Compare ledger and checkpoint without changing either; raises the refusal that a start would raise.

    Kafka answers a commit before its marker is in the ledger, and readers do not see the record until the marker is there. So a
    missing record is a refusal only if readers see the whole ledger; otherwise the comparison is undecided.
    """
    try:
        seen = read_ledger_and_checkpoint(files, topics, kafka, identity, adopt_ledger=adopt_ledger)
        return seen.reconcile(identity, adopt_ledger=adopt_ledger)
    except LedgerLost:
        again = read_ledger_and_checkpoint(
            files, topics, kafka, identity, adopt_ledger=adopt_ledger, wait_until_readable=True
        )
        try:
            return again.reconcile(identity, adopt_ledger=adopt_ledger)
        except LedgerLost as lack:
            if again.conclusive:
                raise
            raise LedgerUndecided(
                f"{lack.found} This is undecided: a transaction in {again.topic} is still open, or its end is still being "
                "written, so readers do not see its records; or a driver is writing to the checkpoint. What helps: try again "
                "in a moment; or start the stream: its driver ends the transaction before it decides."
            ) from lack
