"""Compares the sink with the ledger, batch by batch. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from airflow_ckpt.verify.checks.ledger_check import source_span
from airflow_ckpt.verify.verdict import TRUNCATED, BatchSums, Finding
from ckpt_stream.protocol.ledger.checksum import MASK
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import ConsistentCut
from ckpt_stream.protocol.verification.removed_records import removed_by_compaction, removed_by_retention
from ckpt_stream.protocol.verification.scan_result import Scan, Sums

NAME_THE_RECORDS = "set audit='record' for the stream, so that later verdicts name each record"


def compare_sink(batches: Sequence[Batch], scan: Scan, topic: str) -> Iterator[Finding]:
    """Find batches with fewer, more, or other records than the ledger has."""
    for index, batch in enumerate(batches):
        found = scan.batches.get(index, Sums())
        difference = found.records - batch.records
        words = f"{batch.title} has {batch.records} record(s) in the ledger and {found.records} in {topic}"
        if difference < 0:
            yield Finding(
                "lost",
                f"{words}: {-difference} lost.",
                NAME_THE_RECORDS,
                topic=topic,
                records=-difference,
                **batch.where,
            )
        elif difference > 0:
            yield Finding(
                "surplus",
                f"{words}: {difference} too many (written twice, or by another program).",
                NAME_THE_RECORDS, topic=topic, records=difference, **batch.where,
            )  # fmt: skip
        elif found.checksum != checksum(batch) and comparable(batch):
            yield Finding(
                "altered",
                f"{words}, but their checksum differs: records were altered or exchanged.",
                NAME_THE_RECORDS, topic=topic, **batch.where,
            )  # fmt: skip
        elif (expected := weighted_sum(batch)) is not None and found.placed != expected:
            yield Finding(
                "altered",
                f"{words}: the same records, but some are in other partitions than the transform chose.",
                NAME_THE_RECORDS, topic=topic, **batch.where,
            )  # fmt: skip
    before = scan.batches.get(None)
    if before is not None and before.records:
        yield Finding(
            "alien",
            f"{before.records} record(s) are in {topic} before the first batch of the range.",
            "another producer writes to the sink",
            topic=topic, records=before.records,
        )  # fmt: skip


def comparable(batch: Batch) -> bool:
    """Whether the checksums can be added up: they have one ledger format. Otherwise the check of the ledger has a finding."""
    return len({r.format for r in batch.lanes.values()}) == 1


def checksum(batch: Batch) -> int:
    return sum(r.checksum for r in batch.lanes.values()) & MASK


def weighted_sum(batch: Batch) -> int | None:
    """The checksum weighted by partition; None if the transform did not choose the partition of every record."""
    sums = [r.placed for r in batch.lanes.values() if r.records]
    return None if not comparable(batch) or None in sums else sum(filter(None, sums)) & MASK


def compare_dead_letters(batches: Sequence[Batch], scan: Scan, topic: str) -> Iterator[Finding]:
    """Like `compare_sink`, for a dead-letter topic. Streams may share it, so additional records in it are no violation."""
    for finding in compare_sink(batches, scan, topic):
        if finding.kind in ("surplus", "alien"):
            helps = "give the stream another dead-letter topic, or leave dead letters out of the verification"
            yield replace(finding, kind="dead_letter_surplus", helps=helps, violation=False)
        else:
            helps = (
                "find the malformed records in the source again; their batch is in the ledger with its source offsets"
            )
            yield replace(finding, kind=f"dead_letter_{finding.kind}", helps=helps)


def sums(batches: Sequence[Batch]) -> list[BatchSums]:
    """The sums of the batches, from the ledger."""
    return [BatchSums(b.number, b.any_lane.time, b.records, source=source_span([b]), query=b.query) for b in batches]


def with_found(expected: Sequence[BatchSums], batches: Sequence[Batch], scan: Scan) -> list[BatchSums]:
    """The expected sums, each with the number of records that were found in the sink."""
    found = {b.id: scan.batches.get(index, Sums()).records for index, b in enumerate(batches)}
    return [replace(b, found=found.get((b.query or "", b.batch))) for b in expected]


def check_retention(cut: ConsistentCut, earliest: Mapping[int, int], topic: str, policy: str) -> Iterator[Finding]:
    """Batches from which retention or compaction may have removed records cannot be verified: their verdict is unknown."""
    if not cut.batches:
        return
    if gone := removed_by_retention(cut.start, earliest):
        left = cut.after_retention(earliest).batches
        last = cut.batches[len(cut.batches) - len(left) - 1]
        yield Finding(
            TRUNCATED,
            f"{gone.in_words(topic)} "
            f"Batches {cut.batches[0].name.removeprefix('batch ')} to {last.name.removeprefix('batch ')} are unknown.",
            "verify more often than the sink's retention" + (f", or from {left[0].name} on" if left else ""),
            topic=topic, partition=gone.partition, offset=gone.wanted, violation=False, **last.where,
        )  # fmt: skip
    if what := removed_by_compaction(topic, policy):
        yield Finding(
            "sink_compacted",
            what,
            "verify a topic that is not compacted, or at depth `ledger`",
            topic=topic, violation=False,
        )  # fmt: skip


def readable_part(cut: ConsistentCut, unknown: Sequence[Finding], ends: TopicEnds) -> ConsistentCut | None:
    """The part of the cut that can be read despite the findings: all of it, or the batches after retention; None: nothing."""
    if not unknown:
        return cut
    rest = cut.after_retention(ends.earliest)
    return rest if rest.batches and all(finding.kind == TRUNCATED for finding in unknown) else None
