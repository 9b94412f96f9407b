"""The plan of a verification on its way to a Spark job and to another worker: nothing of it is lost, and no secret is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.verify.conclusion import reach_verdict
from airflow_ckpt.verify.planning import make_plan
from airflow_ckpt.verify.scan_plan import Plan
from airflow_ckpt.verify.verdict import VIOLATED
from airflow_ckpt.verify.verification import scan_in_process
from ckpt_stream.protocol.ledger.ledger_record import FORMATS
from ckpt_stream.protocol.verification.consistent_cut import BatchRange
from tests.airflow_ckpt.verify.sink_in_memory import DEAD, SINK, SinkInMemory
from tests.support.fake_kafka import FakeBroker

pytestmark = pytest.mark.unit

KAFKA = {"bootstrap.servers": "broker:1", "sasl.username": "ann", "sasl.password": "hunter2"}


@pytest.fixture(params=FORMATS)
def sink(request: pytest.FixtureRequest, broker: FakeBroker, tmp_path: Path) -> SinkInMemory:
    """An audited sink with dead letters, in each format of the ledger."""
    sink = SinkInMemory(broker, tmp_path, audit=True, dead_letters=True)
    for _ in range(3):
        sink.batch(format=request.param)
    return sink


def plan_of(sink: SinkInMemory) -> Plan:
    return make_plan(sink.subject, batches=BatchRange(after=0), count_aborted=True)


def test_a_plan_that_was_kept_leads_to_the_same_verdict(sink: SinkInMemory) -> None:
    entry = sink.sink.log[4]
    assert entry is not None
    entry.headers = ((entry.headers[0][0], b"1/0/0"),)
    sink.dead.log[2] = None
    plan = plan_of(sink)
    scans = list(scan_in_process(plan, sink.subject.kafka))
    kept = Plan.from_json(plan.to_json())
    expected = reach_verdict(plan, scans).as_dict()
    assert reach_verdict(kept, scans).as_dict() == expected
    again = list(scan_in_process(kept, sink.subject.kafka))
    assert again[0].audit == scans[0].audit
    assert expected["verdict"] == VIOLATED
    assert [f["kind"] for f in expected["findings"]] == ["duplicate", "lost", "dead_letter_lost"]
    assert (kept.until, kept.count_aborted, kept.offsets) == (plan.until, True, 8)


def test_a_clean_sink_is_clean_in_each_format(sink: SinkInMemory) -> None:
    verdict = sink.verdict()
    assert (verdict.findings, verdict.audited, verdict.sink_committed) == ([], True, 9)


def test_only_what_lies_in_the_range_is_to_be_read(sink: SinkInMemory) -> None:
    """By this number a worker or a Spark job is chosen."""
    assert plan_of(sink).offsets == 2 * 3 + 2 * 1


def test_a_job_is_told_what_to_read_and_no_secret(sink: SinkInMemory) -> None:
    document = plan_of(sink).job(KAFKA, "result.json")
    assert "hunter2" not in json.dumps(document)
    assert document["kafka"] == {name: KAFKA[name] for name in ("bootstrap.servers", "sasl.username")}
    of_sink, of_dead = document["targets"]
    assert [(t["topic"], t["start"], t["end"]) for t in (of_sink, of_dead)] == [
        (SINK, {"0": 3}, {"0": 9}),
        (DEAD, {"0": 1}, {"0": 3}),
    ]
    assert (of_sink["count_aborted"], of_dead["count_aborted"]) == (True, False)
    assert of_sink["lanes"] == [(0, 0, 1, 0, 3), (1, 0, 2, 0, 3)], "each lane that must be there whole"
    assert of_dead["lanes"] is None, "dead letters have no audit header"


@pytest.mark.parametrize("text", ["{}", '{"format": 99}'])
def test_a_plan_of_another_version_is_refused(text: str) -> None:
    with pytest.raises(CkptError):
        Plan.from_json(text)
