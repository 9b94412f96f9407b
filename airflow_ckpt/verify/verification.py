"""One verification of a stream: read ledger, checkpoint, group and sink, and put the verdict together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.kafka.offsets import Ends, Kafka, admin_client, ends_of, group_offsets, topic_settings
from airflow_ckpt.verify.audit import Audit
from airflow_ckpt.verify.cut import Cut, take_cut
from airflow_ckpt.verify.ledger_check import (
    Batch,
    batches_of,
    check_batches,
    check_group,
    check_lanes,
    source_span,
)
from airflow_ckpt.verify.sink_check import check_retention, compare, sums
from airflow_ckpt.verify.sink_scan import Progress, scan
from airflow_ckpt.verify.transactions import check_open
from airflow_ckpt.verify.verdict import LEDGER, SINK, Finding, Verdict
from ckpt_stream.decision import CheckpointEnd
from ckpt_stream.files import ReadableFiles
from ckpt_stream.ledger import LedgerRecord, ledger_topic
from ckpt_stream.ledger_reader import open_reader, read_lane
from ckpt_stream.start_of_run import checkpoint_end


@dataclass(frozen=True)
class Subject:
    """What is verified."""

    stream: str
    kafka: Kafka
    sink_id: str
    sink: str
    group: str | None = None
    files: ReadableFiles | None = None
    transaction_timeout: float = 60.0


@dataclass(frozen=True)
class Range:
    """The batches to look at; the ends are included. None: from the start, to the newest."""

    after: int | None = None
    until: int | None = None


def verify(
    subject: Subject,
    *,
    depth: str = SINK,
    batches: Range = Range(),
    count_aborted: bool = False,
    progress: Progress | None = None,
) -> Verdict:
    """The verdict on a stream. Never raises for what it finds; only for what keeps it from looking (Kafka away)."""
    if depth not in (LEDGER, SINK):
        raise CkptError(f"depth={depth!r} is none of {LEDGER}, {SINK}; `recompute` runs as a Spark job.")
    begun = time.perf_counter()
    verdict = Verdict(subject.stream, depth, time=datetime.now(UTC).isoformat(timespec="seconds"))
    look = _Look(subject)
    ends = look.ends(subject.sink)
    if ends is None:
        verdict.findings.append(_missing(subject.sink, "sink"))
    elif look.lanes_count() is None:
        verdict.findings.append(_missing(ledger_topic(subject.sink_id), "ledger"))
    else:
        _fill(verdict, subject, look, depth, batches, count_aborted, progress)
    verdict.seconds = round(time.perf_counter() - begun, 3)
    return verdict


class _Look:
    """The questions of one verification, with the clients they need."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.admin = admin_client(subject.kafka)
        self.ledger = ledger_topic(subject.sink_id)
        self.lanes: list[list[LedgerRecord]] = []

    def ends(self, topic: str) -> Ends | None:
        return ends_of(self.admin, topic)

    def lanes_count(self) -> int | None:
        ends = self.ends(self.ledger)
        return None if ends is None else len(ends.stable)

    def read_batches(self) -> list[Batch]:
        with open_reader(self.subject.kafka) as reader:
            self.lanes = [read_lane(reader, self.ledger, lane) for lane in range(self.lanes_count() or 0)]
        return batches_of(self.lanes)

    def read_sink_ends(self) -> Ends:
        ends = self.ends(self.subject.sink)
        if ends is None:
            raise CkptError(f"The sink topic {self.subject.sink} was deleted during the verification.")
        return ends


def _missing(topic: str, role: str) -> Finding:
    return Finding(
        "no_topic",
        f"The {role} topic {topic} does not exist.",
        "check the name; a stream that never ran has no ledger yet",
        topic=topic,
        violation=False,
    )


def _fill(
    verdict: Verdict,
    subject: Subject,
    look: _Look,
    depth: str,
    wanted: Range,
    count_aborted: bool,
    progress: Progress | None,
) -> None:
    group = group_offsets(look.admin, subject.group) if subject.group else {}
    before = checkpoint_end(subject.files) if subject.files else None
    cut, batches, ends = take_cut(
        look.read_batches, look.read_sink_ends, subject.sink, after=wanted.after, until=wanted.until
    )
    after = checkpoint_end(subject.files) if subject.files else None
    add = verdict.findings.extend
    add(check_lanes(look.lanes))
    newest = cut.batches[-1].number if cut.batches else (wanted.after if wanted.after is not None else -1)
    add(check_batches([b for b in batches if wanted.after is None or b.number >= wanted.after], newest))
    add(_check_history(batches, cut, wanted))
    if before is not None and after is not None:
        add(_check_checkpoint(batches, before, after))
    if group and batches:
        add(check_group(group, batches[-1].any.end, batches[-1].number))
    for topic in (subject.sink, look.ledger):
        found = ends if topic == subject.sink else look.ends(topic)
        if found is not None:
            stuck = list(check_open(subject.kafka, topic, found, subject.transaction_timeout))
            verdict.open_transactions += len(stuck)
            add(stuck)
    verdict.first_batch = cut.batches[0].number if cut.batches else None
    verdict.last_batch = cut.batches[-1].number if cut.batches else None
    verdict.ledger_records = sum(b.records for b in cut.batches)
    verdict.source_records = source_span(cut.batches)
    verdict.batches = sums(cut.batches, None)
    if depth == SINK:
        _scan_sink(verdict, subject, look, cut, ends, count_aborted, progress)
    if cut.batches and not verdict.findings:
        last = cut.batches[-1]
        verdict.verified_until = {"batch": last.number, "query_id": last.any.query_id}


def _scan_sink(
    verdict: Verdict,
    subject: Subject,
    look: _Look,
    cut: Cut,
    ends: Ends,
    count_aborted: bool,
    progress: Progress | None,
) -> None:
    add = verdict.findings.extend
    policy = topic_settings(look.admin, subject.sink).get("cleanup.policy", "delete")
    unknown = list(check_retention(cut.batches, cut.start, ends.earliest, subject.sink, policy))
    add(unknown)
    if unknown:
        return
    audited = bool(cut.batches) and all(r.audited for b in cut.batches for r in b.lanes.values())
    audit = Audit(cut.batches, subject.sink) if audited else None
    found = scan(subject.kafka, subject.sink, cut.start, cut.end, cut.boundaries, progress, audit)
    verdict.audited = audited
    verdict.sink_committed = found.records
    verdict.records_per_second = round(found.records / found.seconds) if found.seconds else None
    verdict.batches = sums(cut.batches, found)
    differences = list(compare(cut.batches, found, subject.sink))
    if audit is not None:
        audit.finish()
        add(audit.findings)
        # The sums still have a say: an altered record has its name and place.
        add(f for f in differences if f.kind == "altered" or not audit.findings)
        verdict.lost, verdict.duplicated, verdict.alien = audit.lost, audit.duplicated, audit.alien
        verdict.torn, verdict.out_of_order = audit.torn, audit.out_of_order
    else:
        add(differences)
        _numbers_from_sums(verdict, differences)
    verdict.altered = sum(f.kind == "altered" for f in differences)
    if count_aborted:
        both = scan(subject.kafka, subject.sink, cut.start, cut.end, cut.boundaries, None, None, "read_uncommitted")
        verdict.aborted_hidden = both.records - found.records


def _numbers_from_sums(verdict: Verdict, differences: list[Finding]) -> None:
    """Without the audit header the sums tell how many are missing or too many, not which, nor in what order."""
    verdict.lost = sum(f.records or 0 for f in differences if f.kind == "lost")
    surplus = sum(f.records or 0 for f in differences if f.kind == "surplus")
    alien = sum(f.records or 0 for f in differences if f.kind == "alien")
    verdict.duplicated = None if surplus else 0
    verdict.alien = None if surplus else alien
    verdict.torn = None if differences else 0


def _check_history(batches: list[Batch], cut: Cut, wanted: Range) -> Iterator[Finding]:
    """A ledger that no longer reaches back to the start of the range keeps us from telling."""
    if not batches:
        if wanted.after is None:
            yield Finding("no_batches", "The ledger holds no batch yet.", "let the stream run first", violation=False)
        return
    first = batches[0].number
    begin = 0 if wanted.after is None else wanted.after + 1
    if first > begin:
        yield Finding(
            "ledger_history",
            f"The ledger reaches back to batch {first}, the range begins at batch {begin}.",
            f"verify a range that begins at batch {first} or later, more often, or raise ledger_history",
            batch=first,
            violation=False,
        )
    if wanted.until is not None and (not cut.batches or cut.batches[-1].number < wanted.until):
        yield Finding(
            "not_there_yet",
            f"Batch {wanted.until} is not in the ledger yet, or still in flight.",
            "verify again when the stream has committed it",
            batch=wanted.until,
            violation=False,
        )


def _check_checkpoint(batches: list[Batch], before: CheckpointEnd, after: CheckpointEnd) -> Iterable[Finding]:
    """Read before and after the ledger, the checkpoint encloses it: a running stream is not accused."""
    if after.query_id is None or not batches:
        return
    newest = batches[-1]
    if newest.any.query_id != after.query_id:
        yield Finding(
            "foreign_ledger",
            f"The ledger belongs to query {newest.any.query_id}, the checkpoint to query {after.query_id}.",
            "check the names: this checkpoint did not write this sink",
        )
        return
    complete = next((b for b in reversed(batches) if not b.missing), newest)
    if before.committed is not None and complete.number < before.committed:
        yield Finding(
            "ledger_behind",
            f"The checkpoint has committed batch {before.committed}, the ledger ends with batch {complete.number}.",
            "records of the batches between are not in the sink, or their ledger records were removed",
            batch=complete.number + 1,
        )
    if after.newest is not None and newest.number > after.newest:
        yield Finding(
            "ledger_ahead",
            f"The ledger holds batch {newest.number}, the checkpoint's newest is {after.newest}.",
            "the checkpoint was rolled back: a resume would be refused",
            batch=newest.number,
        )
    for batch in batches:
        digest = after.digests.get(batch.number)
        if digest is not None and digest != batch.any.digest:
            yield Finding(
                "other_input",
                f"Batch {batch.number} in the ledger was made from other source offsets than the checkpoint's.",
                "the checkpoint was rolled back or exchanged",
                batch=batch.number,
            )
