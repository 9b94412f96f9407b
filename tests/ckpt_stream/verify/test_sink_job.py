"""The Spark job's rules against those of the scan in process: the same findings for any history, clean or not."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.verify.checks.sink_check import sums
from airflow_ckpt.verify.conclusion import reach_verdict
from airflow_ckpt.verify.scan_plan import DEAD_LETTER_TOPIC, SINK_TOPIC, Plan, PlannedTopic
from airflow_ckpt.verify.verdict import Verdict
from ckpt_stream.errors import ConfigError, ScanResultFormatError
from ckpt_stream.protocol.ledger.checksum import checksum_of
from ckpt_stream.protocol.verification.audit import NONE
from ckpt_stream.protocol.verification.scan_result import Scan, Sums, parse_name, scans_from_json, scans_to_json
from ckpt_stream.verify.scan_tasks import Collector, audit_lane, gather_lanes, gather_sums, hash_name
from ckpt_stream.verify.sink_job import job_from_json
from tests.airflow_ckpt.verify.test_histories import (
    TOPIC,
    Changes,
    Message,
    Model,
    alter,
    changes,
    foreign,
    histories,
    remove,
    repeat,
    written,
)

pytestmark = pytest.mark.unit


def plan_of(model: Model) -> Plan:
    cut = model.cut()
    verdict = Verdict("s", "sink", batches=sums(cut.batches))
    last = {"batch": cut.batches[-1].number, "query_id": cut.batches[-1].query}
    return Plan(verdict, (PlannedTopic.of(cut, TOPIC, SINK_TOPIC, audited=model.audited),), until=last)


def scan_as_job(model: Model, plan: Plan, chunk: int) -> Scan:
    """What Spark does, without Spark: the same functions over the same columns, from the job's own document."""
    job = job_from_json(json.dumps(plan.job({"bootstrap.servers": "b", "sasl.password": "x"}, "file:/r.json")))
    (topic,) = job.topics
    rows = [_row(m, topic.formats) for m in model.read(plan.topics[0])]
    tasks = [[row for row in rows if row["partition"] == p] for p in {row["partition"] for row in rows}]
    found: list[Any] = []
    for task in tasks:
        batches = [pa.RecordBatch.from_pylist(task[i : i + chunk]) for i in range(0, len(task), chunk)]
        for out in Collector(topic.boundaries, topic.expected)(batches):
            found += out.to_pylist()
    scan = gather_sums(found, topic.topic, topic.expected)
    if topic.expected is not None and scan.audit is not None:
        groups: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for row in rows:
            lies_in, _ = topic.boundaries.batch_at(row["partition"], row["offset"])
            index = topic.expected.batch_meant((row["batch"], row["lane"], row["place"]), lies_in)
            if index is not None and row["place"] < (expected := topic.expected.records[index, row["lane"]]):
                groups[index, row["lane"]].append({**row, "index": index, "expected": expected})
        lanes = [row for group in groups.values() for row in audit_lane(pa.Table.from_pylist(group)).to_pylist()]
        gather_lanes(lanes, topic.boundaries, topic.expected, scan.audit)
    return scan


def _row(message: Message, formats: Sequence[int]) -> dict[str, Any]:
    name = (parse_name(message.name) if message.name else None) or (NONE, NONE, NONE)
    hashes = {f: checksum_of([message.key()], [message.value()], [message.headers()], f) for f in formats}
    return {
        "partition": message.place,
        "offset": message.at,
        **{hash_name(f): int(np.uint64(hashed).astype(np.int64)) for f, hashed in hashes.items()},
        **dict(zip(("batch", "lane", "place"), name, strict=True)),
    }


def swap(model: Model, data: Any) -> None:
    """Two records change places, with their names."""
    if len(model.messages) > 1:
        i, j = 0, len(model.messages) - 1
        a, b = model.messages[i], model.messages[j]
        model.messages[i] = replace(b, place=a.place, at=a.at)
        model.messages[j] = replace(a, place=b.place, at=b.at)


def rename(model: Model, data: Any) -> None:
    """A record names a batch, a lane or a place that there is not."""
    index = data.draw(st.integers(0, len(model.messages) - 1))
    name = data.draw(st.sampled_from([b"99/0/0", b"0/99999/0", b"0/0/9999", b"x", b"0/0", b"-1/0/0", b"0/0/0\n"]))
    old = model.messages[index]
    model.messages[index] = replace(old, name=name)


@settings(max_examples=200, deadline=None)
@given(histories, st.booleans(), st.integers(1, 7), changes, st.booleans(), st.data())
def test_job_and_process_find_the_same_facts_and_give_the_same_verdict(
    history: Sequence[tuple[Sequence[int], int]], audited: bool, chunk: int, changed: Changes, chosen: bool, data: Any
) -> None:
    model = written([*history, ([3], 0), ([2], 0)], audited, changed, chosen)
    for fault in data.draw(st.lists(st.sampled_from([remove, repeat, alter, foreign, swap, rename]), max_size=3)):
        if model.messages:
            fault(model, data)
    plan = plan_of(model)
    in_process, by_job = model.scan(plan.topics[0]), scan_as_job(model, plan, chunk)
    assert facts(by_job) == facts(in_process)
    assert without_clock(reach_verdict(plan, [by_job])) == without_clock(reach_verdict(plan, [in_process]))


def facts(scan: Scan) -> dict[str, Any]:
    """Everything that was found, whatever was read first."""
    document: dict[str, Any] = json.loads(scans_to_json([replace(scan, seconds=0)]))["scans"][0]
    for part in (document["batches"], *(document["audit"] or {}).values()):
        if isinstance(part, list):
            part.sort(key=str)
    return document


def without_clock(verdict: Verdict) -> dict[str, Any]:
    """Everything but what depends on the clock."""
    return {k: v for k, v in verdict.as_dict().items() if k not in ("seconds", "records_per_second")}


def test_the_comparison_above_can_fail() -> None:
    model = written([([3], 0), ([2], 0)], True)
    plan = plan_of(model)
    whole = model.scan(plan.topics[0])
    del model.messages[0]
    assert without_clock(reach_verdict(plan, [scan_as_job(model, plan, 2)])) != without_clock(
        reach_verdict(plan, [whole])
    )


def test_a_plan_comes_back_from_json_with_the_same_conclusion() -> None:
    model = written([([3, 2], 0), ([2, 1], 1)], True)
    foreign(model, None)
    plan = plan_of(model)
    again = Plan.from_json(plan.to_json())
    assert again.offsets == plan.offsets
    assert again.job({}, "r") == plan.job({}, "r")
    found = scans_from_json(scans_to_json([model.scan(plan.topics[0])]))
    assert without_clock(reach_verdict(again, found)) == without_clock(reach_verdict(plan, found))
    assert reach_verdict(again, found).alien == 1
    with pytest.raises(CkptError, match="format 7"):
        Plan.from_json('{"format": 7}')


def test_a_conclusion_changes_nothing_in_its_plan() -> None:
    model = written([([3], 0)], False)
    plan = plan_of(model)
    before = plan.to_json()
    foreign(model, None)
    reach_verdict(plan, [model.scan(plan.topics[0])])
    assert plan.to_json() == before


def test_a_topic_that_was_not_read_is_unknown() -> None:
    plan = plan_of(written([([3], 0)], False))
    verdict = reach_verdict(plan, [])
    assert verdict.verdict == "unknown"
    assert [f.kind for f in verdict.findings] == ["not_scanned"]
    assert verdict.verified_until is None


def test_secrets_stay_out_of_the_job_and_are_refused_in_it() -> None:
    plan = plan_of(written([([3], 0)], False))
    document = plan.job({"bootstrap.servers": "b", "sasl.password": "x"}, "r")
    assert document["kafka"] == {"bootstrap.servers": "b"}
    with pytest.raises(ConfigError, match=r"sasl\.password"):
        job_from_json(json.dumps({**document, "kafka": {"sasl.password": "x"}}))
    with pytest.raises(ConfigError):
        job_from_json("[]")


def test_a_result_of_another_kind_is_refused() -> None:
    for text in ("", "{}", '{"format": 2}', '{"format": 3, "scans": []}', '{"format": 2, "scans": [{}]}'):
        with pytest.raises(ScanResultFormatError):
            scans_from_json(text)


def test_missing_dead_letters_are_a_violation_and_surplus_ones_are_unknown() -> None:
    model = written([([3], 0)], False)
    topic = PlannedTopic.of(model.cut(), "dead", DEAD_LETTER_TOPIC)
    plan = Plan(Verdict("s", "sink"), (topic,))
    claimed = Sums(3, sum(r.checksum for r in model.lanes[0]))
    exact = reach_verdict(plan, [Scan({0: claimed}, 3, topic="dead")])
    assert (exact.verdict, exact.dead_letters) == ("clean", 3)
    fewer = reach_verdict(plan, [Scan({0: Sums(2, 5)}, 2, topic="dead")])
    assert (fewer.verdict, [f.kind for f in fewer.findings]) == ("violated", ["dead_letter_lost"])
    other = reach_verdict(plan, [Scan({0: Sums(3, 5)}, 3, topic="dead")])
    assert (other.verdict, [f.kind for f in other.findings]) == ("violated", ["dead_letter_altered"])
    shared = reach_verdict(plan, [Scan({0: Sums(4, 5)}, 4, topic="dead")])
    assert (shared.verdict, [f.kind for f in shared.findings]) == ("unknown", ["dead_letter_surplus"])
