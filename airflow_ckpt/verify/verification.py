"""One verification of a stream: read ledger, checkpoint, group and sink, and put the verdict together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.kafka.offsets import Ends, Kafka, admin_client, ends_of, group_offsets, topic_settings
from airflow_ckpt.verify.audit import Audit
from airflow_ckpt.verify.batches import Batch, batches_of
from airflow_ckpt.verify.conclusion import conclude
from airflow_ckpt.verify.cut import ALL, Cut, cut_beside, take_cut
from airflow_ckpt.verify.cut import Range as Range
from airflow_ckpt.verify.ledger_check import check_batches, check_group, check_lanes, source_span
from airflow_ckpt.verify.plan import DEAD_LETTERS, Plan, Target
from airflow_ckpt.verify.plan import SINK as SINK_ROLE
from airflow_ckpt.verify.readers import scan_sums
from airflow_ckpt.verify.replays import add_replays
from airflow_ckpt.verify.sink_check import check_retention, sums
from airflow_ckpt.verify.sink_scan import Progress, scan
from airflow_ckpt.verify.transactions import check_open
from airflow_ckpt.verify.verdict import HISTORY, LEDGER, SINK, TRUNCATED, Finding, Verdict
from ckpt_stream.decision import Adoption, CheckpointEnd
from ckpt_stream.files import ReadableFiles
from ckpt_stream.ledger import LedgerRecord, Offsets, ledger_topic
from ckpt_stream.ledger_reader import LaneLog, open_reader
from ckpt_stream.sink_facts import Scan
from ckpt_stream.start_of_run import checkpoint_end, read_adoption
from ckpt_stream.topics import Topics


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


def verify(
    subject: Subject,
    *,
    depth: str = SINK,
    batches: Range = ALL,
    count_aborted: bool = False,
    dead_letters: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """The verdict on a stream. Never raises for what it finds; only for what keeps it from looking (Kafka away)."""
    begun = time.perf_counter()
    made = plan(subject, depth=depth, batches=batches, count_aborted=count_aborted, dead_letters=dead_letters)
    verdict = conclude(made, scan_here(made, subject.kafka, progress))
    verdict.seconds = round(time.perf_counter() - begun, 3)
    return verdict


def plan(
    subject: Subject,
    *,
    depth: str = SINK,
    batches: Range = ALL,
    count_aborted: bool = False,
    dead_letters: bool = True,
) -> Plan:
    """Everything but the reading of the sink: the checks of the ledger, and the cut that is to be read."""
    if depth not in (LEDGER, SINK):
        raise CkptError(
            f"depth={depth!r} is none of {LEDGER}, {SINK}. `recompute` runs as a Spark job: submit the stream's application "
            'with "recompute": {"result": <file>} in its configuration.'
        )
    begun = time.perf_counter()
    begin = 0 if batches.after is None else batches.after + 1
    verdict = Verdict(subject.stream, depth, since=begin, time=datetime.now(UTC).isoformat(timespec="seconds"))
    look = _Look(subject)
    made = Plan(verdict)
    if look.ends(subject.sink) is None:
        verdict.findings.append(missing_topic(subject.sink, "sink"))
    elif look.lanes_count() is None:
        verdict.findings.append(missing_topic(ledger_topic(subject.sink_id), "ledger"))
    else:
        cut, ends = _check_ledger(verdict, subject, look, batches)
        targets: list[Target] = []
        if depth == SINK:
            targets += _sink_target(verdict, subject, look, cut, ends)
            if dead_letters:
                targets += _dead_letter_targets(verdict, look, cut)
        last = cut.batches[-1] if cut.batches else None
        until = {"batch": last.number, "query_id": last.any.query_id} if last else None
        made = Plan(verdict, tuple(targets), count_aborted, until)
    verdict.seconds = round(time.perf_counter() - begun, 3)
    return made


def scan_here(made: Plan, kafka: Kafka, progress: Progress | None = None) -> Iterator[Scan]:
    """Read what the plan names on this machine, one topic after the other."""
    for target in made.targets:
        audit = Audit(target.batches, target.topic) if target.audited else None
        where = (target.topic, target.start, target.end, target.boundaries)
        if audit is None:
            found = scan_sums(kafka, *where, progress)
        else:
            found = scan(kafka, *where, progress, audit)
            found.audit = audit.finish()
        if made.count_aborted and target.role == SINK_ROLE:
            found.uncommitted = scan_sums(kafka, *where, None, "read_uncommitted").records
        yield found


class _Look:
    """The questions of one verification, with the clients they need."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.admin = admin_client(subject.kafka)
        self.ledger = ledger_topic(subject.sink_id)
        self.lanes: list[list[LedgerRecord]] = []
        self.logs: dict[int, LaneLog] = {}
        self._adoptions: dict[str, Adoption] = {}

    def read_checkpoint(self) -> CheckpointEnd | None:
        """Where the checkpoint stands; and what its query took over, if it did."""
        if self.subject.files is None:
            return None
        found = checkpoint_end(self.subject.files)
        if found.query_id is not None and (adopted := read_adoption(self.subject.files)) is not None:
            self._adoptions[found.query_id] = adopted
        return found

    def ends(self, topic: str) -> Ends | None:
        return ends_of(self.admin, topic)

    def lanes_count(self) -> int | None:
        ends = self.ends(self.ledger)
        return None if ends is None else len(ends.stable)

    def read_batches(self) -> list[Batch]:
        with open_reader(self.subject.kafka) as reader:
            logs = [self.logs.setdefault(n, LaneLog(self.ledger, n)) for n in range(self.lanes_count() or 0)]
            self.lanes = [log.read(reader) for log in logs]
        return batches_of(self.lanes, self._adoptions)

    def read_group(self) -> Offsets:
        """Where the stream's group stands in the partitions that the ledger names."""
        if not self.subject.group or not (batches := self.read_batches()):
            return {}
        partitions = {topic: map(int, ends) for topic, ends in batches[-1].any.end.items()}
        return group_offsets(self.subject.kafka, self.subject.group, partitions)

    def settle(self) -> bool:
        """Wait until readers see all that is in the ledger now, so that a commit seen elsewhere is seen here too.

        A commit is answered before its marker is in the ledger. False: a transaction holds readers back for longer.
        """
        topics = Topics(self.subject.kafka)
        try:
            return topics.find(self.ledger) is None or topics.settle(self.ledger)
        finally:
            topics.close()

    def read_settled(self) -> list[Batch]:
        """The batches once readers see what was in the ledger before."""
        self.settle()
        lanes = self.lanes
        try:
            return self.read_batches()
        finally:
            self.lanes = lanes

    def adoption_of(self, checkpoint: CheckpointEnd) -> Adoption | None:
        return self._adoptions.get(checkpoint.query_id or "")

    def read_sink_ends(self) -> Ends:
        ends = self.ends(self.subject.sink)
        if ends is None:
            raise CkptError(f"The sink topic {self.subject.sink} was deleted during the verification.")
        return ends


def missing_topic(topic: str, role: str) -> Finding:
    return Finding(
        "no_topic",
        f"The {role} topic {topic} does not exist.",
        "check the name; a stream that never ran has no ledger yet, and one that is at_least_once never has",
        topic=topic,
        violation=False,
    )


def _check_ledger(verdict: Verdict, subject: Subject, look: _Look, wanted: Range) -> tuple[Cut, Ends]:
    """Ledger, checkpoint, group and open transactions; and the cut through the sink, with the sink's ends."""
    group = look.read_group()
    before = look.read_checkpoint()
    settled = look.settle()
    cut, batches, ends = take_cut(look.read_batches, look.read_sink_ends, subject.sink, wanted)
    after = look.read_checkpoint()
    add = verdict.findings.extend
    add(check_lanes(look.lanes))
    lacks = list(check_batches(_with_the_one_before(batches, cut, wanted)))
    if before is not None and after is not None:
        lacks += _check_checkpoint(batches, before, after, look.adoption_of(after))
    if group and batches:
        lacks += check_group(group, batches[-1])
    add(lacks if settled else map(_undecided, lacks))
    add(_check_history(batches, cut, wanted))
    if subject.files is not None:
        add_replays(verdict, subject.files, {b.id for b in cut.batches})
    for topic in (subject.sink, look.ledger):
        held = ends if topic == subject.sink else look.ends(topic)
        if held is not None:
            stuck = list(check_open(subject.kafka, topic, held, subject.transaction_timeout))
            verdict.open_transactions += len(stuck)
            add(stuck)
    verdict.first_batch = cut.batches[0].number if cut.batches else None
    verdict.last_batch = cut.batches[-1].number if cut.batches else None
    verdict.ledger_records = sum(b.records for b in cut.batches)
    verdict.source_records = source_span(cut.batches)
    verdict.batches = sums(cut.batches)
    verdict.queries = _queries(batches)
    verdict.since_query = None if wanted.after is None or not batches else wanted.query or batches[-1].query
    return cut, ends


def _queries(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    numbers: dict[str, list[int]] = {}
    for batch in batches:
        numbers.setdefault(batch.query, []).append(batch.number)
    return [{"query_id": query, "first": found[0], "last": found[-1]} for query, found in numbers.items()]


def _with_the_one_before(batches: Sequence[Batch], cut: Cut, wanted: Range) -> Sequence[Batch]:
    """The batches of the range up to the cut's last, and the one that the first of them must follow."""
    first, _ = wanted.of(batches)
    last = batches.index(cut.batches[-1]) + 1 if cut.batches else first
    return batches[max(0, first - 1) : last]


#: Findings that a record which readers do not see yet would refute.
LACKS = ("torn_batch", "ledger_behind", "group_ahead")


def _undecided(finding: Finding) -> Finding:
    """What seems to be missing may lie behind an open transaction: undecided until that has ended."""
    if finding.kind not in LACKS:
        return finding
    return replace(
        finding,
        what=f"{finding.what} A transaction in the ledger has not ended yet, or its end is still being written: undecided.",
        helps="verify again; what stays open is reported as `open_transaction`, and the next start of the stream ends it",
        violation=False,
    )


def _sink_target(verdict: Verdict, subject: Subject, look: _Look, cut: Cut, ends: Ends) -> Iterator[Target]:
    policy = topic_settings(look.admin, subject.sink).get("cleanup.policy", "delete")
    unknown = list(check_retention(cut, ends.earliest, subject.sink, policy))
    verdict.findings.extend(unknown)
    for rest in _readable(cut, unknown, ends):
        audited = bool(rest.batches) and all(r.audited for b in rest.batches for r in b.lanes.values())
        yield Target.of(rest, subject.sink, SINK_ROLE, audited=audited)


def _readable(cut: Cut, unknown: Sequence[Finding], ends: Ends) -> Iterator[Cut]:
    """What can be read in spite of the findings: all, or what retention has left."""
    if not unknown:
        yield cut
    elif all(finding.kind == TRUNCATED for finding in unknown) and (rest := cut.after_retention(ends.earliest)).batches:
        yield rest


def _dead_letter_targets(verdict: Verdict, look: _Look, cut: Cut) -> Iterator[Target]:
    """The dead-letter topics that the batches name, with what the ledger claims of each."""
    topics = {r.dead_letter_topic for b in cut.batches for r in b.lanes.values() if r.dead_letter_topic}
    for topic in sorted(topics):
        ends = look.ends(topic)
        if ends is None:
            verdict.findings.append(missing_topic(topic, "dead-letter"))
            continue
        # A batch may have been committed since the cut: where it began bounds the newest one of the cut.
        beside = cut_beside(cut.batches, look.read_settled(), ends, topic)
        beside = replace(beside, batches=[_dead_letters_of(b, topic) for b in cut.batches])
        policy = topic_settings(look.admin, topic).get("cleanup.policy", "delete")
        unknown = list(check_retention(beside, ends.earliest, topic, policy))
        unknown += _check_new_partitions(cut.batches, ends, topic)
        verdict.findings.extend(unknown)
        for rest in _readable(beside, unknown, ends):
            yield Target.of(rest, topic, DEAD_LETTERS)


def _check_new_partitions(batches: Sequence[Batch], ends: Ends, topic: str) -> Iterator[Finding]:
    """A run looks at the dead-letter topic's partitions when it starts: for one that is added later, the batches are unknown."""
    naming = [b for b in batches if any(r.dead_letter_topic == topic for r in b.lanes.values())]
    for partition, end in ends.stable.items():
        if end > 0 and any(partition not in b.sink_start(topic) for b in naming):
            yield Finding(
                "dead_letter_partition",
                f"{topic}-{partition} was added while the stream ran: its records cannot be told apart by batch.",
                "restart the stream after partitions were added, and verify a range that begins there",
                topic=topic,
                partition=partition,
                violation=False,
            )


def _dead_letters_of(batch: Batch, topic: str) -> Batch:
    """The batch as the dead-letter topic should show it."""
    lanes = {
        lane: replace(r, records=r.dead_letters, checksum=r.dead_letter_checksum, placed=None)
        if r.dead_letter_topic == topic
        else replace(r, records=0, checksum=0, placed=None)
        for lane, r in batch.lanes.items()
    }
    return replace(batch, lanes=lanes)


def _check_history(batches: list[Batch], cut: Cut, wanted: Range) -> Iterator[Finding]:
    """A ledger that does not hold the range, or not all of it, keeps us from telling."""
    begin = 0 if wanted.after is None else wanted.after + 1
    if not batches:
        what = "The ledger holds no batch yet."
        helps = "let the stream run first"
        if begin > 0:
            what = f"The range begins at batch {begin}, and the ledger holds no batch at all."
            helps = "look at `airflow-ckpt ledger show`: it was emptied or made anew"
        yield Finding("no_batches", what, helps, violation=False)
        return
    newest = batches[-1]
    if wanted.query in (None, newest.query) and begin > newest.number + 1:
        yield Finding(
            "not_there_yet",
            f"The range begins at batch {begin}, the ledger's newest is {newest.name}.",
            "choose an earlier batch; if it was verified before, the ledger has lost batches: `airflow-ckpt ledger show`",
            batch=begin,
            violation=False,
        )
    place, end = wanted.of(batches)
    asked = None if wanted.after is None else (wanted.query or newest.query, begin)
    if forgotten := [b for b in batches[place : end + 1] if b.cut_off and b.id != asked]:
        first = forgotten[-1]
        of = f" of query {asked[0]}" if asked and (first.shared or asked[0] != first.query) else ""
        before = ", before which another query wrote the sink" if first.adopted and not first.number else ""
        yield Finding(
            HISTORY,
            f"The ledger reaches back to {first.name}{before}; the range begins at batch {begin}{of}.",
            f"verify a range that begins at {first.name} or later, more often, or raise ledger_history",
            violation=False,
            **first.where,
        )
    last = cut.batches[-1] if cut.batches else None
    if wanted.until is not None and (last is None or last.query != newest.query or last.number < wanted.until):
        yield Finding(
            "not_there_yet",
            f"Batch {wanted.until} is not in the ledger yet, or still in flight.",
            "verify again when the stream has committed it",
            batch=wanted.until,
            violation=False,
        )


def _check_checkpoint(
    batches: list[Batch], before: CheckpointEnd, after: CheckpointEnd, adopted: Adoption | None
) -> Iterable[Finding]:
    """Read before and after the ledger, the checkpoint encloses it: a running stream is not accused."""
    if after.query_id is None or not batches:
        return
    newest = batches[-1]
    mine = [b for b in batches if b.query == after.query_id]
    took_over = adopted is not None and (adopted.query_id, adopted.batch) == newest.id
    if newest.query != after.query_id and not took_over:
        yield Finding(
            "foreign_ledger",
            f"The ledger belongs to query {newest.query}, the checkpoint to query {after.query_id}.",
            "check the names: this checkpoint did not write this sink",
        )
        return
    if mine and mine[0] is not batches[0] and not mine[0].cut_off and mine[0].adopted is None:
        yield Finding(
            "foreign_ledger",
            f"Query {after.query_id} of the checkpoint writes on in the ledger of query {batches[0].query}, and no record says "
            'that it took that over (`start="ledger"`).',
            "find out which of the two queries the sink belongs to: each record may be there from both",
            **mine[0].where,
        )
    complete = max((b.number for b in mine if not b.missing), default=mine[-1].number if mine else -1)
    if before.committed is not None and complete < before.committed:
        yield Finding(
            "ledger_behind",
            f"The checkpoint has committed batch {before.committed}, the ledger ends with "
            + (f"batch {complete}." if mine else f"{newest.name}, before its first."),
            "records of the batches between are not in the sink, or their ledger records were removed",
            batch=complete + 1,
            query=after.query_id,
        )
    if mine and after.newest is not None and mine[-1].number > after.newest:
        yield Finding(
            "ledger_ahead",
            f"The ledger holds {mine[-1].name}, the checkpoint's newest is {after.newest}.",
            "the checkpoint was rolled back: a resume would be refused",
            **mine[-1].where,
        )
    for batch in mine:
        digest = after.digests.get(batch.number)
        if digest is not None and digest != batch.any.digest:
            yield Finding(
                "other_input",
                f"{batch.title} in the ledger was made from other source offsets than the checkpoint's.",
                "the checkpoint was rolled back or exchanged",
                **batch.where,
            )
