"""The sink topic of a run: found at its start, and checked before each batch."""

from __future__ import annotations

from dataclasses import dataclass

from ckpt_stream.errors import SinkRecreated
from ckpt_stream.kafka.topics import Topics
from ckpt_stream.protocol.offsets import Offsets
from ckpt_stream.protocol.settings.config import StreamConfig


@dataclass(frozen=True)
class SinkTopic:
    """The sink topic as it was found at the start of a run."""

    topics: Topics
    name: str
    #: Changes when the topic is deleted and created again.
    id: str
    sink_id: str
    #: The largest record batch that the topic accepts; None if the stream's user may not read the topic's settings.
    max_message_bytes: int | None = None
    dead_letter_topic: str | None = None

    def ends(self) -> Offsets:
        """Where the sink and the dead-letter topic end now; raises SinkRecreated if the sink is another topic than before."""
        others = (self.dead_letter_topic,) if self.dead_letter_topic else ()
        found, ends = self.topics.sink_and_ends(self.name, *others)
        if found is None or found.id != self.id:
            now = "is gone" if found is None else f"was deleted and created again (id {found.id} instead of {self.id})"
            raise SinkRecreated(
                f"The sink topic {self.name!r} {now} while the stream ran.",
                "The records of earlier batches are gone.",
                f"find out which user or program did it; accept the loss with `airflow-ckpt ledger rebuild {self.sink_id}`.",
            )
        return ends


def find_sink_topic(topics: Topics, config: StreamConfig) -> SinkTopic:
    """Find the sink topic; raises SinkRejected if that or the dead-letter topic does not exist."""
    sink = topics.get(config.sink, "sink")
    if config.dead_letter_topic:
        topics.get(config.dead_letter_topic, "dead-letter")
    return SinkTopic(
        topics,
        config.sink,
        sink.id,
        config.sink_id,
        topics.max_message_bytes(config.sink),
        config.dead_letter_topic,
    )
