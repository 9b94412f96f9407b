"""The scan of a sink as a Spark job gives the same verdict as the scan in process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.verify.conclusion import reach_verdict
from airflow_ckpt.verify.planning import make_plan
from airflow_ckpt.verify.scan_plan import Plan
from airflow_ckpt.verify.verdict import CLEAN, VIOLATED, Verdict
from airflow_ckpt.verify.verification import scan_in_process
from ckpt_stream.protocol.verification.scan_result import scans_from_json
from ckpt_stream.verify.sink_job import job_from_json, run_job
from tests.support.written_sink import KIND, Written, kinds, rows

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def _clean(sink: Written) -> None:
    sink.batch(rows(10, 200), commit=False).abort_transaction()
    sink.batch([(None, "x"), ("k", None), (None, None), ("", "")])


def _removed(sink: Written) -> None:
    sink.batch(rows(9, 100), claim=rows(10, 100))
    sink.batch(rows(40, 100), skip_lanes=(1,))


def _replayed(sink: Written) -> None:
    sink.batch(rows(30, 30), number=1, with_ledger=False)


def _altered(sink: Written) -> None:
    sink.batch([*rows(9, 100), ("k", "altered")], claim=rows(10, 100))


def _alien(sink: Written) -> None:
    sink.plain("k1", "v1")
    sink.batch([("k", f"v{i}") for i in range(6)], places=[1, 0, 2])  # two records of each lane have changed places


def _taken_over(sink: Written) -> None:
    sink.format = 1
    sink.take_over("q2")
    sink.batch(rows(40), headers=KIND)
    sink.format = 2
    sink.batch([*rows(30, 40), (None, "x"), ("y", None)], headers=KIND, chosen=[1, 0, 1])


def _taken_over_and_replayed(sink: Written) -> None:
    sink.take_over("q2")
    sink.batch(rows(40))
    sink.batch(rows(30, 40))
    sink.batch(rows(30, 40), number=1, with_ledger=False)
    sink.batch(rows(9), claim=rows(10))


def _header_lost(sink: Written) -> None:
    sink.batch(rows(10), claim_headers=KIND)


def _elsewhere(sink: Written) -> None:
    sink.batch(rows(10), chosen=[0, 1], claim_chosen=[1, 0])


@pytest.mark.parametrize(
    ("fault", "audit", "expected"),
    [
        (_taken_over, True, set()),
        (_taken_over, False, set()),
        (_taken_over_and_replayed, True, {"duplicate", "lost"}),
        (_header_lost, True, {"altered"}),
        (_elsewhere, False, {"altered"}),
        (_clean, True, set()),
        (_clean, False, set()),
        (_removed, True, {"lost", "torn_batch"}),
        (_replayed, True, {"duplicate"}),
        (_replayed, False, {"surplus"}),
        (_altered, False, {"altered"}),
        (_alien, True, {"alien", "out_of_order"}),
    ],
)
def test_the_spark_job_gives_the_same_verdict_as_the_scan_in_process(
    spark: Any, kafka: Any, tmp_path: Path, fault: Callable[[Written], None], audit: bool, expected: set[str]
) -> None:
    sink = Written(kafka.client_config(), lanes=2, partitions=2, audit=audit)
    sink.batch(rows(30))
    sink.batch(rows(30, 30))
    fault(sink)
    made = make_plan(sink.subject, count_aborted=True)
    here = reach_verdict(made, scan_in_process(made, sink.kafka))
    kept, result = made.to_json(), tmp_path / "facts" / "scan.json"
    run_job(spark, job_from_json(json.dumps(made.job(sink.kafka, f"file://{result}"))))
    job = reach_verdict(Plan.from_json(kept), scans_from_json(result.read_text()))
    assert without_clock(job) == without_clock(here)
    assert kinds(job) == expected
    assert job.verdict == (VIOLATED if expected else CLEAN)


def without_clock(verdict: Verdict) -> dict[str, Any]:
    """Everything but what depends on the clock, and on which partition was read first."""
    document = {k: v for k, v in verdict.as_dict().items() if k not in ("seconds", "records_per_second")}
    return {**document, "findings": sorted(document["findings"], key=str)}
