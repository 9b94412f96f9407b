"""Plans the verification of dead-letter topics: the topics that the batches name, each with its sums in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from airflow_ckpt.verify.checks.sink_check import check_retention, readable_part
from airflow_ckpt.verify.checks.topics_check import missing_topic
from airflow_ckpt.verify.scan_plan import DEAD_LETTER_TOPIC, PlannedTopic
from airflow_ckpt.verify.subject import SubjectReader
from airflow_ckpt.verify.verdict import Finding, Verdict
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import ConsistentCut, cut_beside


def plan_dead_letters(verdict: Verdict, reader: SubjectReader, cut: ConsistentCut) -> Iterator[PlannedTopic]:
    """The range to read of each of these topics; if a topic cannot be read, a finding is added to the verdict."""
    topics = {r.dead_letter_topic for b in cut.batches for r in b.lanes.values() if r.dead_letter_topic}
    for topic in sorted(topics):
        ends = reader.ends(topic)
        if ends is None:
            verdict.findings.append(missing_topic(topic, "dead-letter"))
            continue
        # A batch may have been committed since the cut: its start is the end of the newest batch in the cut.
        beside = cut_beside(cut.batches, reader.read_settled(), ends, topic)
        beside = replace(beside, batches=[dead_letters_of(b, topic) for b in cut.batches])
        unknown = list(check_retention(beside, ends.earliest, topic, reader.cleanup_policy(topic)))
        unknown += check_new_partitions(cut.batches, ends, topic)
        verdict.findings.extend(unknown)
        rest = readable_part(beside, unknown, ends)
        if rest is not None:
            yield PlannedTopic.of(rest, topic, DEAD_LETTER_TOPIC)


def check_new_partitions(batches: Sequence[Batch], ends: TopicEnds, topic: str) -> Iterator[Finding]:
    """A run lists the partitions of the dead-letter topic at its start; in a partition added later, the batches are unknown."""
    naming = [b for b in batches if any(r.dead_letter_topic == topic for r in b.lanes.values())]
    for partition, end in ends.stable.items():
        if end > 0 and any(partition not in b.sink_start(topic) for b in naming):
            yield Finding(
                "dead_letter_partition",
                f"{topic}-{partition} was added while the stream ran: it is unknown to which batch its records belong.",
                "restart the stream after partitions were added, and verify a range that begins there",
                topic=topic,
                partition=partition,
                violation=False,
            )


def dead_letters_of(batch: Batch, topic: str) -> Batch:
    """The batch with the sums that the dead-letter topic should have."""
    lanes = {
        lane: replace(r, records=r.dead_letters, checksum=r.dead_letter_checksum, placed=None)
        if r.dead_letter_topic == topic
        else replace(r, records=0, checksum=0, placed=None)
        for lane, r in batch.lanes.items()
    }
    return replace(batch, lanes=lanes)
