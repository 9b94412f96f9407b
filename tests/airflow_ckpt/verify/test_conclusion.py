"""The end of a verification: only a topic that was read can be clean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_ckpt.verify.conclusion import reach_verdict
from airflow_ckpt.verify.scan_plan import DEAD_LETTER_TOPIC, SINK_TOPIC, Plan, PlannedTopic
from airflow_ckpt.verify.verdict import CLEAN, TRUNCATED, UNKNOWN, VIOLATED, Finding, Verdict
from ckpt_stream.protocol.ledger.ledger_batches import batches_of
from ckpt_stream.protocol.verification.scan_result import DUPLICATE, AuditResult, Boundaries, Example, Scan, Sums
from tests.ckpt_stream.samples import held

pytestmark = pytest.mark.unit

BATCHES = batches_of([[held(0, records=10, checksum=77), held(1, records=10, checksum=78)]])
UNTIL = {"batch": 1, "query_id": "query-1"}


def topic(name: str, role: str) -> PlannedTopic:
    return PlannedTopic(name, role, BATCHES, {0: 0}, {0: 20}, Boundaries({0: [0, 10]}))


SINK, DEAD = topic("orders-out", SINK_TOPIC), topic("orders-dead", DEAD_LETTER_TOPIC)


def read(topic: PlannedTopic) -> Scan:
    """A scan that found what the ledger has."""
    return Scan(topic=topic.name, records=20, batches={0: Sums(10, 77), 1: Sums(10, 78)})


def plan(*topics: PlannedTopic, findings: tuple[Finding, ...] = ()) -> Plan:
    return Plan(Verdict("orders", "sink", findings=list(findings)), topics, until=UNTIL)


def test_topics_that_were_read_and_hold_what_the_ledger_says_are_clean() -> None:
    verdict = reach_verdict(plan(SINK, DEAD), [read(SINK), read(DEAD)])
    assert verdict.verdict == CLEAN, verdict.findings
    assert (verdict.sink_committed, verdict.dead_letters, verdict.lost) == (20, 20, 0)
    assert verdict.verified_until == UNTIL


@pytest.mark.parametrize(
    ("scanned", "missing"),
    [([], ["orders-out", "orders-dead"]), ([SINK], ["orders-dead"]), ([DEAD], ["orders-out"])],
)
def test_a_topic_of_the_plan_that_was_not_read_is_unknown(scanned: list[PlannedTopic], missing: list[str]) -> None:
    verdict = reach_verdict(plan(SINK, DEAD), map(read, scanned))
    assert [(f.kind, f.topic, f.violation) for f in verdict.findings] == [
        ("not_scanned", name, False) for name in missing
    ]
    assert verdict.verdict == UNKNOWN
    assert (verdict.reached, verdict.verified_until) == (UNTIL, None)


def test_a_scan_of_another_topic_is_not_taken_for_that_of_the_sink() -> None:
    verdict = reach_verdict(plan(SINK), [replace(read(SINK), topic="another")])
    assert [f.kind for f in verdict.findings] == ["not_scanned"]
    assert verdict.sink_committed is None, "what was not read is unknown, not 0"


def test_a_violation_outweighs_what_was_not_read() -> None:
    torn = Finding("torn_batch", "Lane 1 is missing.")
    assert reach_verdict(plan(SINK, findings=(torn,)), []).verdict == VIOLATED


def found(first: Sums, audit: AuditResult | None = None, *findings: Finding) -> Verdict:
    """The verdict when the first batch has these sums, and the second one what the ledger says."""
    audited = replace(SINK, audited=audit is not None)
    scan = Scan(topic=SINK.name, records=20, batches={0: first, 1: Sums(10, 78)}, audit=audit)
    return reach_verdict(plan(audited, findings=findings), [scan])


@pytest.mark.parametrize(
    ("sums", "kind", "numbers"),
    [
        (Sums(10, 77), None, (0, 0, 0, 0, 0)),
        (Sums(8, 70), "lost", (2, 0, 0, None, 0)),
        # A copy, or a record of another producer; and a copy may hide that a lane is missing.
        (Sums(11, 80), "surplus", (0, None, None, None, 0)),
        (Sums(10, 79), "altered", (0, 0, 0, None, 1)),
    ],
)
def test_what_the_sums_cannot_show_is_unknown_and_not_0(
    sums: Sums, kind: str | None, numbers: tuple[int | None, ...]
) -> None:
    verdict = found(sums)
    assert [f.kind for f in verdict.findings] == ([kind] if kind else [])
    assert (verdict.lost, verdict.duplicated, verdict.alien, verdict.torn, verdict.altered) == numbers


def test_an_altered_record_is_found_beside_the_faults_that_its_name_does_not_show() -> None:
    """The audit header names a record and says nothing of its value."""
    doubled = AuditResult()
    doubled.add(Example(DUPLICATE, 0, 12, 1, (1, 0, 0), 1))
    verdict = found(Sums(10, 79), doubled)
    assert sorted(f.kind for f in verdict.findings) == ["altered", "duplicate"]
    assert (verdict.duplicated, verdict.altered) == (1, 1)


def test_what_the_audit_names_is_not_reported_by_the_sums_again() -> None:
    doubled = AuditResult()
    doubled.add(Example(DUPLICATE, 0, 2, 0, (0, 0, 0), 0))
    assert [f.kind for f in found(Sums(11, 80), doubled).findings] == ["duplicate"]


def test_a_difference_that_the_audit_does_not_name_is_reported_by_the_sums() -> None:
    assert [f.kind for f in found(Sums(11, 80), AuditResult()).findings] == ["surplus"]


@pytest.mark.parametrize(("topic", "lost"), [(SINK.name, None), (DEAD.name, 0)])
def test_of_a_sink_that_retention_has_cut_short_it_is_unknown_whether_records_are_lost(
    topic: str, lost: int | None
) -> None:
    """What retention has deleted of another topic says nothing about the sink."""
    assert found(Sums(10, 77), None, Finding(TRUNCATED, "", topic=topic, violation=False)).lost == lost
