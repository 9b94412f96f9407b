"""What is verified, and what Kafka and the checkpoint hold of it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.kafka.group_offsets import group_offsets
from ckpt_stream.kafka.admin_client import admin_client
from ckpt_stream.kafka.ask_topic_ends import topic_ends
from ckpt_stream.kafka.ledger_lanes import LedgerLanes
from ckpt_stream.kafka.settings import Kafka
from ckpt_stream.kafka.topic_settings import cleanup_policy, topic_settings
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.checkpoint.intact_checkpoint import IntactCheckpoint, read_intact_checkpoint
from ckpt_stream.protocol.ledger.ledger_batches import Batch, batches_of
from ckpt_stream.protocol.ledger.ledger_record import LedgerRecord, ledger_topic
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.run_files.adoption import Adoption, read_adoption
from ckpt_stream.protocol.storage import ReadableFiles
from ckpt_stream.protocol.topic_ends import TopicEnds


@dataclass(frozen=True)
class Subject:
    """The stream that is verified: its topics, and where its checkpoint and its consumer group are."""

    stream: str
    kafka: Kafka
    sink_id: str
    sink: str
    group: str | None = None
    files: ReadableFiles | None = None
    transaction_timeout: float = 60.0


class SubjectReader:
    """Reads for one verification what Kafka and the checkpoint hold of its subject, with the clients for it."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.admin = admin_client(subject.kafka)
        self.ledger = ledger_topic(subject.sink_id)
        self.lanes: list[list[LedgerRecord]] = []
        self._all_lanes = LedgerLanes(subject.kafka, self.ledger)
        self._adoptions: dict[str, Adoption] = {}

    def read_checkpoint(self) -> IntactCheckpoint | None:
        """Where the checkpoint stands; and what its query took over, if it did."""
        if self.subject.files is None:
            return None
        found = read_intact_checkpoint(self.subject.files)
        if found.query_id is not None and (adopted := read_adoption(self.subject.files)) is not None:
            self._adoptions[found.query_id] = adopted
        return found

    def ends(self, topic: str) -> TopicEnds | None:
        """Where a topic begins and ends; None when there is no such topic."""
        return topic_ends(self.admin, topic)

    def lanes_count(self) -> int | None:
        ends = self.ends(self.ledger)
        return None if ends is None else len(ends.stable)

    def read_batches(self) -> list[Batch]:
        self.lanes = self._all_lanes.read(range(self.lanes_count() or 0))
        return batches_of(self.lanes, self._adoptions)

    def read_group(self) -> Offsets:
        """Where the stream's group stands in the partitions that the ledger names."""
        if not self.subject.group or not (batches := self.read_batches()):
            return {}
        partitions = {topic: map(int, ends) for topic, ends in batches[-1].any_lane.end.items()}
        return group_offsets(self.subject.kafka, self.subject.group, partitions)

    def wait_for_ledger(self) -> bool:
        """Wait until readers see all that is in the ledger now, so that a commit seen elsewhere is seen here too.

        A commit is answered before its marker is in the ledger. False: a transaction holds readers back for longer.
        """
        topics = Topics(self.subject.kafka)
        try:
            return topics.find(self.ledger) is None or topics.wait_until_readable(self.ledger)
        finally:
            topics.close()

    def read_settled(self) -> list[Batch]:
        """The batches once readers see what was in the ledger before."""
        self.wait_for_ledger()
        lanes = self.lanes
        try:
            return self.read_batches()
        finally:
            self.lanes = lanes

    def adoption_of(self, checkpoint: IntactCheckpoint) -> Adoption | None:
        return self._adoptions.get(checkpoint.query_id or "")

    def read_sink_ends(self) -> TopicEnds:
        ends = self.ends(self.subject.sink)
        if ends is None:
            raise CkptError(f"The sink topic {self.subject.sink} was deleted during the verification.")
        return ends

    def cleanup_policy(self, topic: str) -> str:
        return cleanup_policy(topic_settings(self.admin, topic))
