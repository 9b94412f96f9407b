"""What verifications keep: ledger records, plans, results of Spark jobs, verdicts and how far the stream was verified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from airflow_ckpt.operators.verify import ExactlyOnceVerifyOperator
from airflow_ckpt.streams.driver_state import Handle
from airflow_ckpt.verify import planning
from airflow_ckpt.verify.checks.sink_check import sums
from airflow_ckpt.verify.kept_verdicts import VERDICTS
from airflow_ckpt.verify.scan_plan import SINK_TOPIC, Plan, PlannedTopic
from airflow_ckpt.verify.verdict import SINK, Finding, Verdict
from ckpt_stream.protocol.ledger.ledger_record import ANCHOR, LedgerRecord, ledger_topic, transactional_id
from ckpt_stream.protocol.verification.scan_result import scans_to_json
from ckpt_stream.verify.recompute_documents import RecomputeResult
from tests.airflow_ckpt.operators.fakes import a_context
from tests.airflow_ckpt.verify.test_histories import TOPIC, Model
from tests.ckpt_stream.moving import QUERY
from tests.ckpt_stream.samples import held
from tests.compatibility.capture_airflow import Deferrals, playing
from tests.compatibility.site import ENDS_WELL, KAFKA, Site


def verified_model() -> Model:
    """Three batches of two lanes: the first of ledger format 1, the others of format 2."""
    model = Model(audited=True, query=QUERY, format=1)
    model.batch([5, 5])
    model.format, model.chosen = 2, True
    model.batch([4, 6], aborted=1)
    model.batch([0, 10])
    return model


def planned(model: Model) -> Plan:
    cut = model.cut()
    verdict = Verdict("orders", SINK, first_batch=0, last_batch=2, source_records=30, ledger_records=30)
    verdict.batches = sums(cut.batches)
    verdict.queries = [{"query_id": QUERY, "first": 0, "last": 2}]
    verdict.notes = [Finding("replay_differed", "Batch 1 replayed differently.", "compare", 1, 0, violation=False)]
    topic = PlannedTopic.of(cut, TOPIC, SINK_TOPIC, audited=True)
    return Plan(verdict, (topic,), count_aborted=True, until={"batch": 2, "query_id": QUERY})


def ledger() -> list[dict[str, Any]]:
    """Records of both formats and kinds, as they are in the ledger topic."""
    full = held(
        8, 1, 2, kind="batch", sink_start={"orders-out": {"0": 80}}, audited=True, dead_letter_topic="orders-dead",
        dead_letters=2, dead_letter_checksum=7, placed=11, offsets="v1\n{}\n{}", attempt="run-0",
        adopted={"query_id": "the-query-before", "batch": 3},
    )  # fmt: skip
    kinds = [full, replace(full, format=1), held(8, 0, 2, kind=ANCHOR, records=0, checksum=0)]
    kinds.append(replace(kinds[-1], format=1))
    return [_as_in_kafka(record) for record in (*kinds, *(r for lane in verified_model().lanes for r in lane))]


def _as_in_kafka(record: LedgerRecord) -> dict[str, Any]:
    return {
        "topic": ledger_topic(record.sink_id),
        "partition": record.lane,
        "transactional_id": transactional_id(record.sink_id, record.lane),
        "key": record.key.decode(),
        "value": record.to_json().decode(),
    }


def capture(site: Site) -> list[dict[str, Any]]:
    """One verification that is over, and one at each depth whose Spark job is done while the task is still deferred."""
    kept, model, site.command = Deferrals(), verified_model(), ENDS_WELL
    control = site.control("dag.verify manual__5", kafka=KAFKA)
    with playing(control), patch.object(planning, "make_plan", lambda *given, **more: planned(model)):
        fired = _scanned(kept, site, model)
        _operator(site).on_event(a_context(), fired)
        _scanned(kept, site, model)
        _recomputed(kept, site)
    return kept.stored[1:]


def _operator(site: Site, **settings: Any) -> ExactlyOnceVerifyOperator:
    return ExactlyOnceVerifyOperator(
        task_id="verify", stream=site.stream, engine="spark", deferrable=True, poll_interval=7, **settings
    )


def _scanned(kept: Deferrals, site: Site, model: Model) -> dict[str, Any]:
    operator = _operator(site)
    fired = kept.by(operator, lambda: operator.execute(a_context()), None)
    scans = [model.scan(topic) for topic in planned(model).topics]
    scans[0].uncommitted = scans[0].records + 11
    _result(site, fired, scans_to_json(scans))
    return fired


def _recomputed(kept: Deferrals, site: Site) -> None:
    operator = _operator(site, depth="recompute")
    fired = kept.by(operator, lambda: operator.execute(a_context()), None)
    result = RecomputeResult("orders", "orders_out", "batch", last_batch=2, source_records=30)
    result.expected, result.found, result.lost, result.duplicated, result.alien = 30, 30, 1, 0, 1
    examples: Sequence[dict[str, Any]] = (
        {"kind": "lost", "records": 1, "key": "k1", "value": "v1", "partition": None, "offset": None},
        {"kind": "alien", "records": 1, "key": None, "value": "v2", "partition": 1, "offset": 7},
    )
    result.examples += examples
    result.unknown.append({"kind": "checkpoint_history", "what": "Batch 0 is gone.", "helps": "verify the sink"})
    result.seconds = 1.5
    _result(site, fired, json.dumps(result.as_dict()))


def _result(site: Site, fired: dict[str, Any], text: str) -> None:
    token = Handle.from_dict(fired["handle"]).token
    site.wait_for_the_end(token)
    site.files.write(f"{VERDICTS}/{token}.result", text)
