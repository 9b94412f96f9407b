"""One verification of a stream in this process: plan it, read the topics, and reach the verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator

from airflow_ckpt.verify.checks.audit_check import expected_lanes
from airflow_ckpt.verify.conclusion import reach_verdict
from airflow_ckpt.verify.planning import make_plan
from airflow_ckpt.verify.scan.sink_scan import Progress, scan
from airflow_ckpt.verify.scan_plan import SINK_TOPIC, Plan
from airflow_ckpt.verify.subject import Subject
from airflow_ckpt.verify.verdict import SINK, Verdict
from ckpt_stream.kafka.settings import Kafka
from ckpt_stream.protocol.verification.consistent_cut import ALL_BATCHES, BatchRange
from ckpt_stream.protocol.verification.scan_result import Scan


def verify(
    subject: Subject,
    *,
    depth: str = SINK,
    batches: BatchRange = ALL_BATCHES,
    count_aborted: bool = False,
    dead_letters: bool = True,
    progress: Progress | None = None,
) -> Verdict:
    """Verify a stream. Raises only if Kafka or the checkpoint cannot be read; faults become findings of the verdict."""
    begun = time.perf_counter()
    plan = make_plan(subject, depth=depth, batches=batches, count_aborted=count_aborted, dead_letters=dead_letters)
    verdict = reach_verdict(plan, scan_in_process(plan, subject.kafka, progress))
    verdict.seconds = round(time.perf_counter() - begun, 3)
    return verdict


def scan_in_process(plan: Plan, kafka: Kafka, progress: Progress | None = None) -> Iterator[Scan]:
    """Read the topics of the plan in this process, one after the other."""
    for topic in plan.topics:
        where = (topic.name, topic.start, topic.end, topic.boundaries)
        found = scan(kafka, *where, progress, expected_lanes(topic.batches) if topic.audited else None)
        if plan.count_aborted and topic.role == SINK_TOPIC:
            found.uncommitted = scan(kafka, *where, isolation="read_uncommitted").records
        yield found
