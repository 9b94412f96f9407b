"""The conclusion of a verification: what was read from the sink, here or by a Spark job, against what was claimed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_ckpt.verify.audit import account
from airflow_ckpt.verify.plan import SINK, Plan, Target
from airflow_ckpt.verify.sink_check import compare, compare_dead_letters, with_found
from airflow_ckpt.verify.verdict import TRUNCATED, Finding, Verdict
from ckpt_stream.sink_facts import Scan


def conclude(plan: Plan, scans: Iterable[Scan] = ()) -> Verdict:
    """The verdict. A topic of the plan that was not read keeps it from being clean."""
    verdict = replace(plan.verdict, findings=list(plan.verdict.findings), batches=list(plan.verdict.batches))
    found = {scan.topic: scan for scan in scans}
    for target in plan.targets:
        scan = found.get(target.topic)
        if scan is None:
            verdict.findings.append(
                Finding(
                    "not_scanned",
                    f"{target.topic} was to be read, and no scan of it has arrived.",
                    "see how the job that reads it ended",
                    topic=target.topic,
                    violation=False,
                )
            )
        elif target.role == SINK:
            _sink(verdict, target, scan)
        else:
            verdict.dead_letters = (verdict.dead_letters or 0) + scan.records
            verdict.findings.extend(compare_dead_letters(target.batches, scan, target.topic))
            verdict.seconds = round(verdict.seconds + scan.seconds, 3)
    if plan.until is not None:
        verdict.reached = dict(plan.until)
        verdict.verified_until = None if verdict.findings else dict(plan.until)
    return verdict


def _sink(verdict: Verdict, target: Target, scan: Scan) -> None:
    verdict.sink_committed = scan.records
    verdict.seconds = round(verdict.seconds + scan.seconds, 3)
    verdict.records_per_second = round(scan.records / scan.seconds) if scan.seconds else None
    verdict.batches = with_found(verdict.batches, target.batches, scan)
    verdict.audited = target.audited
    if scan.uncommitted is not None:
        verdict.aborted_hidden = scan.uncommitted - scan.records
    differences = list(compare(target.batches, scan, target.topic))
    if target.audited and scan.audit is not None:
        accounted = account(target.batches, scan.audit, target.topic)
        verdict.findings.extend(accounted.findings)
        # The sums still have a say: an altered record has its name and place.
        verdict.findings.extend(f for f in differences if f.kind == "altered" or not accounted.findings)
        verdict.lost, verdict.duplicated, verdict.alien = accounted.lost, accounted.duplicated, accounted.alien
        verdict.torn, verdict.out_of_order = accounted.torn, accounted.out_of_order
    else:
        verdict.findings.extend(differences)
        _numbers_from_sums(verdict, differences)
    verdict.altered = sum(f.kind == "altered" for f in differences)
    if any(f.kind == TRUNCATED and f.topic == target.topic for f in verdict.findings):
        # Whether deleted records had been there is unknown.
        verdict.lost = verdict.lost or None


def _numbers_from_sums(verdict: Verdict, differences: Sequence[Finding]) -> None:
    """Without the audit header the sums tell how many are missing or too many, not which, nor in what order."""
    verdict.lost = sum(f.records or 0 for f in differences if f.kind == "lost")
    surplus = sum(f.records or 0 for f in differences if f.kind == "surplus")
    alien = sum(f.records or 0 for f in differences if f.kind == "alien")
    verdict.duplicated = None if surplus else 0
    verdict.alien = None if surplus else alien
    verdict.torn = None if differences else 0
