"""The end of a verification: compares the scan of the sink, from this process or a Spark job, with the ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_ckpt.verify.checks.audit_check import check_records
from airflow_ckpt.verify.checks.sink_check import compare_dead_letters, compare_sink, with_found
from airflow_ckpt.verify.scan_plan import SINK_TOPIC, Plan, PlannedTopic
from airflow_ckpt.verify.verdict import TRUNCATED, Finding, Verdict
from ckpt_stream.protocol.verification.scan_result import Scan


def reach_verdict(plan: Plan, scans: Iterable[Scan] = ()) -> Verdict:
    """Reach the verdict. If a topic of the plan was not read, the verdict is not clean."""
    verdict = replace(plan.verdict, findings=list(plan.verdict.findings), batches=list(plan.verdict.batches))
    found = {scan.topic: scan for scan in scans}
    for topic in plan.topics:
        scan = found.get(topic.name)
        if scan is None:
            verdict.findings.append(
                Finding(
                    "not_scanned",
                    f"{topic.name} was to be read, and no scan of it has arrived.",
                    "look at the log of the job that reads it, then verify again",
                    topic=topic.name,
                    violation=False,
                )
            )
        elif topic.role == SINK_TOPIC:
            _sink(verdict, topic, scan)
        else:
            verdict.dead_letters = (verdict.dead_letters or 0) + scan.records
            verdict.findings.extend(compare_dead_letters(topic.batches, scan, topic.name))
            verdict.seconds = round(verdict.seconds + scan.seconds, 3)
    if plan.until is not None:
        verdict.reached = dict(plan.until)
        verdict.verified_until = None if verdict.findings else dict(plan.until)
    return verdict


def _sink(verdict: Verdict, topic: PlannedTopic, scan: Scan) -> None:
    verdict.sink_committed = scan.records
    verdict.seconds = round(verdict.seconds + scan.seconds, 3)
    verdict.records_per_second = round(scan.records / scan.seconds) if scan.seconds else None
    verdict.batches = with_found(verdict.batches, topic.batches, scan)
    verdict.audited = topic.audited
    if scan.uncommitted is not None:
        verdict.aborted_hidden = scan.uncommitted - scan.records
    differences = list(compare_sink(topic.batches, scan, topic.name))
    if topic.audited and scan.audit is not None:
        faults = check_records(topic.batches, scan.audit, topic.name)
        verdict.findings.extend(faults.findings)
        # Only the sums show an altered record, because its name and place are correct.
        verdict.findings.extend(f for f in differences if f.kind == "altered" or not faults.findings)
        verdict.lost, verdict.duplicated, verdict.alien = faults.lost, faults.duplicated, faults.alien
        verdict.torn, verdict.out_of_order = faults.torn, faults.out_of_order
    else:
        verdict.findings.extend(differences)
        _numbers_from_sums(verdict, differences)
    verdict.altered = sum(f.kind == "altered" for f in differences)
    if any(f.kind == TRUNCATED and f.topic == topic.name for f in verdict.findings):
        # It is unknown whether deleted records had been in the sink.
        verdict.lost = verdict.lost or None


def _numbers_from_sums(verdict: Verdict, differences: Sequence[Finding]) -> None:
    """Without the audit header, the sums show how many records are missing or too many, but not which, and not their order."""
    verdict.lost = sum(f.records or 0 for f in differences if f.kind == "lost")
    surplus = sum(f.records or 0 for f in differences if f.kind == "surplus")
    alien = sum(f.records or 0 for f in differences if f.kind == "alien")
    verdict.duplicated = None if surplus else 0
    verdict.alien = None if surplus else alien
    verdict.torn = None if differences else 0
