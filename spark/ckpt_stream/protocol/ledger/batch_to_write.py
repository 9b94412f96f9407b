"""What a lane compares with its ledger before it writes: the stream's sink, and the next batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckpt_stream.protocol.run_files.adoption import Adoption

FIRST_BATCH = 0


@dataclass(frozen=True)
class SinkIdentity:
    """A stream at its sink: the name of its ledger and transactions, its number of lanes, and the topic."""

    #: Names the ledger topic and the transactions of all lanes.
    sink_id: str
    lanes: int
    topic: str
    #: Kafka's id of the topic; a topic that was deleted and created again has another id.
    topic_id: str


@dataclass(frozen=True)
class BatchToWrite:
    """A batch that the lanes of a stream are to write, and what identifies its input."""

    sink: SinkIdentity
    query_id: str
    batch: int
    #: The digest of the batch's entry in the offset log.
    digest: str
    #: The end of the ledger that this query has adopted, if it has adopted one.
    adopted: Adoption | None = None

    def divided_into(self, lanes: int) -> BatchToWrite:
        """The same batch with another number of lanes."""
        return replace(self, sink=replace(self.sink, lanes=lanes))
