"""The subject of a verification, and the reader of its data in Kafka and in the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_ckpt.exceptions import ScanStuck
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
    """The stream that is verified: its topics, its checkpoint and its consumer group."""

    stream: str
    kafka: Kafka
    sink_id: str
    sink: str
    group: str | None = None
    files: ReadableFiles | None = None
    transaction_timeout: float = 60.0


class SubjectReader:
    """Reads the data of one verification from Kafka and the checkpoint."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.admin = admin_client(subject.kafka)
        self.ledger = ledger_topic(subject.sink_id)
        self.lanes: list[list[LedgerRecord]] = []
        self._all_lanes = LedgerLanes(subject.kafka, self.ledger)
        self._adoptions: dict[str, Adoption] = {}

    def read_checkpoint(self) -> IntactCheckpoint | None:
        """Read the checkpoint, and the end of the ledger that its query has adopted, if it has adopted one."""
        if self.subject.files is None:
            return None
        found = read_intact_checkpoint(self.subject.files)
        if found.query_id is not None and (adopted := read_adoption(self.subject.files)) is not None:
            self._adoptions[found.query_id] = adopted
        return found

    def ends(self, topic: str) -> TopicEnds | None:
        """Where a topic begins and ends; None if there is no such topic."""
        return topic_ends(self.admin, topic)

    def lanes_count(self) -> int | None:
        ends = self.ends(self.ledger)
        return None if ends is None else len(ends.stable)

    def read_batches(self) -> list[Batch]:
        self.lanes = self._all_lanes.read(range(self.lanes_count() or 0))
        return batches_of(self.lanes, self._adoptions)

    def read_group(self) -> Offsets:
        """Read the committed offsets of the stream's group in the partitions that the ledger names."""
        if not self.subject.group or not (batches := self.read_batches()):
            return {}
        partitions = {topic: map(int, ends) for topic, ends in batches[-1].any_lane.end.items()}
        return group_offsets(self.subject.kafka, self.subject.group, partitions)

    def wait_for_ledger(self) -> bool:
        """Wait until readers see all records that are in the ledger now, so that each commit in the checkpoint is seen here too.

        Kafka answers a commit before its marker is in the ledger. False: a transaction still hides records from readers,
        or Kafka does not know the ledger any more.
        """
        topics = Topics(self.subject.kafka)
        try:
            return topics.find(self.ledger, expected=True) is not None and topics.wait_until_readable(self.ledger)
        finally:
            topics.close()

    def read_settled(self) -> list[Batch]:
        """Read the batches when readers see all records that were in the ledger before."""
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
            raise ScanStuck(
                f"The sink topic {self.subject.sink} was deleted during the verification. Find out who deleted it."
            )
        return ends

    def cleanup_policy(self, topic: str) -> str:
        return cleanup_policy(topic_settings(self.admin, topic))
