"""The first half of a verification: the checks of the ledger, and the ranges of the topics to read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.exceptions import BadArgument
from airflow_ckpt.verify.checks.checkpoint_check import check_checkpoint
from airflow_ckpt.verify.checks.history_check import check_history
from airflow_ckpt.verify.checks.ledger_check import check_batches, check_group, check_lanes, source_span
from airflow_ckpt.verify.checks.open_transactions import check_open
from airflow_ckpt.verify.checks.replays_check import add_replays
from airflow_ckpt.verify.checks.sink_check import check_retention, readable_part, sums
from airflow_ckpt.verify.checks.topics_check import missing_topic
from airflow_ckpt.verify.dead_letters import plan_dead_letters
from airflow_ckpt.verify.scan_plan import SINK_TOPIC, Plan, PlannedTopic
from airflow_ckpt.verify.subject import Subject, SubjectReader
from airflow_ckpt.verify.verdict import LEDGER, SINK, Finding, Verdict
from ckpt_stream.protocol.ledger.ledger_batches import Batch
from ckpt_stream.protocol.ledger.ledger_record import ledger_topic
from ckpt_stream.protocol.topic_ends import TopicEnds
from ckpt_stream.protocol.verification.consistent_cut import (
    ALL_BATCHES,
    BatchRange,
    ConsistentCut,
    Snapshot,
    take_consistent_cut,
)

#: Findings that may be wrong, because readers do not see a record yet.
MAYBE_HIDDEN = ("torn_batch", "ledger_behind", "group_ahead")


def make_plan(
    subject: Subject,
    *,
    depth: str = SINK,
    batches: BatchRange = ALL_BATCHES,
    count_aborted: bool = False,
    dead_letters: bool = True,
) -> Plan:
    """Everything except reading the topics: the checks of the ledger, and the consistent cut that is to be read."""
    if depth not in (LEDGER, SINK):
        raise BadArgument(
            f"depth={depth!r} is none of {LEDGER}, {SINK}. `recompute` runs as a Spark job: submit the stream's application "
            'with "recompute": {"result": <file>} in its configuration.'
        )
    begun = time.perf_counter()
    begin = 0 if batches.after is None else batches.after + 1
    verdict = Verdict(subject.stream, depth, since=begin, time=datetime.now(UTC).isoformat(timespec="seconds"))
    reader = SubjectReader(subject)
    plan = Plan(verdict)
    if reader.ends(subject.sink) is None:
        verdict.findings.append(missing_topic(subject.sink, "sink"))
    elif reader.lanes_count() is None:
        verdict.findings.append(missing_topic(ledger_topic(subject.sink_id), "ledger"))
    else:
        cut, ends = _check_ledger(verdict, reader, batches)
        topics: list[PlannedTopic] = []
        if depth == SINK:
            topics += _plan_sink(verdict, reader, cut, ends)
            if dead_letters:
                topics += plan_dead_letters(verdict, reader, cut)
        last = cut.batches[-1] if cut.batches else None
        until = {"batch": last.number, "query_id": last.query} if last else None
        plan = Plan(verdict, tuple(topics), count_aborted, until)
    verdict.seconds = round(time.perf_counter() - begun, 3)
    return plan


def _check_ledger(verdict: Verdict, reader: SubjectReader, wanted: BatchRange) -> tuple[ConsistentCut, TopicEnds]:
    """Check ledger, checkpoint, group and open transactions; returns the cut through the sink, with the sink's ends."""
    subject = reader.subject
    group = reader.read_group()
    before = reader.read_checkpoint()
    ledger_is_settled = reader.wait_for_ledger()
    cut, snapshot = take_consistent_cut(lambda: _snapshot(reader, wanted), subject.sink)
    batches = snapshot.batches
    after = reader.read_checkpoint()
    add = verdict.findings.extend
    add(check_lanes(reader.lanes))
    missing = list(check_batches(_with_the_one_before(batches, cut, wanted)))
    if before is not None and after is not None:
        missing += check_checkpoint(batches, before, after, reader.adoption_of(after))
    if group and batches:
        missing += check_group(group, batches[-1])
    add(missing if ledger_is_settled else map(_undecided, missing))
    add(check_history(batches, cut, wanted))
    if subject.files is not None:
        add_replays(verdict, subject.files, {b.id for b in cut.batches})
    _check_open_transactions(verdict, reader, snapshot.ends)
    verdict.first_batch = cut.batches[0].number if cut.batches else None
    verdict.last_batch = cut.batches[-1].number if cut.batches else None
    verdict.ledger_records = sum(b.records for b in cut.batches)
    verdict.source_records = source_span(cut.batches)
    verdict.batches = sums(cut.batches)
    verdict.queries = _queries(batches)
    verdict.since_query = None if wanted.after is None or not batches else wanted.query or batches[-1].query
    return cut, snapshot.ends


def _snapshot(reader: SubjectReader, wanted: BatchRange) -> Snapshot:
    batches = reader.read_batches()
    ends = reader.read_sink_ends()
    again = reader.read_batches()
    return Snapshot(batches, ends, at_rest=[b.id for b in batches] == [b.id for b in again], wanted=wanted)


def _check_open_transactions(verdict: Verdict, reader: SubjectReader, sink_ends: TopicEnds) -> None:
    subject = reader.subject
    for topic, ends in ((subject.sink, sink_ends), (reader.ledger, reader.ends(reader.ledger))):
        if ends is not None:
            found = list(check_open(subject.kafka, topic, ends, subject.transaction_timeout))
            verdict.open_transactions += len(found)
            verdict.findings.extend(found)


def _queries(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    numbers: dict[str, list[int]] = {}
    for batch in batches:
        numbers.setdefault(batch.query, []).append(batch.number)
    return [{"query_id": query, "first": found[0], "last": found[-1]} for query, found in numbers.items()]


def _with_the_one_before(batches: Sequence[Batch], cut: ConsistentCut, wanted: BatchRange) -> Sequence[Batch]:
    """The batches of the range up to the last batch of the cut, and the batch that the first of them must follow."""
    first, _ = wanted.slice_of(batches)
    last = batches.index(cut.batches[-1]) + 1 if cut.batches else first
    return batches[max(0, first - 1) : last]


def _undecided(finding: Finding) -> Finding:
    """Mark findings as undecided: an open transaction may hide the records that seem to be missing."""
    if finding.kind not in MAYBE_HIDDEN:
        return finding
    return replace(
        finding,
        what=f"{finding.what} Undecided: a transaction in the ledger has not ended, or its end is still being written.",
        helps="verify again; a transaction that stays open is reported as `open_transaction`, and the next start of the stream "
        "ends it",
        violation=False,
    )


def _plan_sink(verdict: Verdict, reader: SubjectReader, cut: ConsistentCut, ends: TopicEnds) -> list[PlannedTopic]:
    sink = reader.subject.sink
    unknown = list(check_retention(cut, ends.earliest, sink, reader.cleanup_policy(sink)))
    verdict.findings.extend(unknown)
    rest = readable_part(cut, unknown, ends)
    if rest is None:
        return []
    audited = bool(rest.batches) and all(r.audited for b in rest.batches for r in b.lanes.values())
    return [PlannedTopic.of(rest, sink, SINK_TOPIC, audited=audited)]
