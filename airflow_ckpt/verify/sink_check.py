"""What the sink holds, compared batch by batch with what the ledger claims. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from airflow_ckpt.verify.batches import Batch
from airflow_ckpt.verify.cut import Cut
from airflow_ckpt.verify.ledger_check import source_span
from airflow_ckpt.verify.verdict import TRUNCATED, BatchSums, Finding
from ckpt_stream.checksum import MASK
from ckpt_stream.sink_facts import Scan, Sums

NOT_WHERE = "turn on audit='record' for the stream to have each record named from now on"


def compare(batches: Sequence[Batch], scan: Scan, topic: str) -> Iterator[Finding]:
    """Fewer, more, or other records than the ledger says."""
    for turn, batch in enumerate(batches):
        found = scan.batches.get(turn, Sums())
        difference = found.records - batch.records
        words = f"{batch.title} has {batch.records} record(s) in the ledger and {found.records} in {topic}"
        if difference < 0:
            yield Finding(
                "lost", f"{words}: {-difference} lost.", NOT_WHERE, topic=topic, records=-difference, **batch.where
            )
        elif difference > 0:
            yield Finding(
                "surplus",
                f"{words}: {difference} too many (written twice, or by another program).",
                NOT_WHERE, topic=topic, records=difference, **batch.where,
            )  # fmt: skip
        elif found.checksum != checksum(batch) and comparable(batch):
            yield Finding(
                "altered",
                f"{words}, but their checksum differs: records were altered or exchanged.",
                NOT_WHERE, topic=topic, **batch.where,
            )  # fmt: skip
        elif (expected := placed(batch)) is not None and found.placed != expected:
            yield Finding(
                "altered",
                f"{words}, the same ones, but some are in other partitions than the transform chose.",
                NOT_WHERE, topic=topic, **batch.where,
            )  # fmt: skip
    before = scan.batches.get(None)
    if before is not None and before.records:
        yield Finding(
            "alien",
            f"{before.records} record(s) lie in {topic} before the first batch of the range.",
            "another producer writes to the sink",
            topic=topic, records=before.records,
        )  # fmt: skip


def comparable(batch: Batch) -> bool:
    """Checksums of different ledger formats cannot be added up; the check of the ledger says so."""
    return len({r.format for r in batch.lanes.values()}) == 1


def checksum(batch: Batch) -> int:
    return sum(r.checksum for r in batch.lanes.values()) & MASK


def placed(batch: Batch) -> int | None:
    """The checksum of the records with their partitions; None where the transform did not choose them all."""
    sums = [r.placed for r in batch.lanes.values() if r.records]
    return None if not comparable(batch) or None in sums else sum(filter(None, sums)) & MASK


def compare_dead_letters(batches: Sequence[Batch], scan: Scan, topic: str) -> Iterator[Finding]:
    """The same for a dead-letter topic, which streams may share: what is too much there accuses nobody."""
    for finding in compare(batches, scan, topic):
        if finding.kind in ("surplus", "alien"):
            helps = "give the stream a dead-letter topic of its own, or leave dead letters out of the verification"
            yield replace(finding, kind="dead_letter_surplus", helps=helps, violation=False)
        else:
            helps = (
                "find the malformed records in the source again; their batch is in the ledger with its source offsets"
            )
            yield replace(finding, kind=f"dead_letter_{finding.kind}", helps=helps)


def sums(batches: Sequence[Batch]) -> list[BatchSums]:
    """The batches as the ledger claims them."""
    return [BatchSums(b.number, b.any.time, b.records, source=source_span([b]), query=b.query) for b in batches]


def with_found(claimed: Sequence[BatchSums], batches: Sequence[Batch], scan: Scan) -> list[BatchSums]:
    """The same with what was found of each batch that was read."""
    found = {b.id: scan.batches.get(turn, Sums()).records for turn, b in enumerate(batches)}
    return [replace(b, found=found.get((b.query or "", b.batch))) for b in claimed]


def check_retention(cut: Cut, earliest: Mapping[int, int], topic: str, policy: str) -> Iterator[Finding]:
    """What retention or compaction may have taken away keeps us from telling; it is not called clean."""
    gone = {p: (offset, earliest[p]) for p, offset in cut.start.items() if earliest.get(p, 0) > offset}
    if gone and cut.batches:
        partition, (wanted, first) = next(iter(gone.items()))
        left = cut.after_retention(earliest).batches
        last = cut.batches[len(cut.batches) - len(left) - 1]
        yield Finding(
            TRUNCATED,
            f"{topic}-{partition} begins at offset {first}, the range at {wanted}: retention has deleted records of it. "
            f"This leaves unknown batches {cut.batches[0].name.removeprefix('batch ')} to {last.name.removeprefix('batch ')}.",
            "verify more often than the sink's retention" + (f", or from {left[0].name} on" if left else ""),
            topic=topic, partition=partition, offset=wanted, violation=False, **last.where,
        )  # fmt: skip
    if "compact" in policy and cut.batches:
        yield Finding(
            "sink_compacted",
            f"{topic} has cleanup.policy={policy}: compaction removes records that were delivered.",
            "verify a topic that is not compacted, or at depth `ledger`",
            topic=topic, violation=False,
        )  # fmt: skip
