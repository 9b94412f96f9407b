"""The verdict from a recomputation's result, and the request for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.verify.recompute_verdict import verdict_of
from ckpt_stream.errors import ConfigError
from ckpt_stream.verify.recompute_documents import RecomputeRequest, RecomputeResult, take_request

pytestmark = pytest.mark.unit


def result(**changes: Any) -> str:
    found = RecomputeResult("orders", "sink", "batch", 7, 100, 100, 100, 0, 0, 0)
    return json.dumps({**found.as_dict(), **changes})


def test_an_equal_sink_is_clean() -> None:
    verdict = verdict_of(result())
    assert (verdict.verdict, verdict.depth, verdict.stream) == ("clean", "recompute", "orders")
    assert (verdict.first_batch, verdict.last_batch, verdict.recomputed, verdict.sink_committed) == (0, 7, 100, 100)
    assert (verdict.lost, verdict.duplicated, verdict.alien) == (0, 0, 0)
    assert verdict.torn is None, "a recomputation knows no lanes"


def test_each_fault_is_a_violation_and_the_rest_is_counted() -> None:
    examples = [
        {"kind": "lost", "records": 1, "key": "k", "value": "v", "partition": None, "offset": None},
        {"kind": "alien", "records": 2, "key": None, "value": "x", "partition": 1, "offset": 9},
    ]
    verdict = verdict_of(result(lost=4, alien=2, examples=examples))
    assert verdict.verdict == "violated"
    assert [(f.kind, f.records) for f in verdict.findings] == [("lost", 1), ("lost", 3), ("alien", 2)]
    assert all(part in verdict.findings[2].what for part in ("key null", "value 'x'", "sink-1 offset 9"))


def test_what_could_not_be_told_is_neither_clean_nor_violated() -> None:
    unknown = {"kind": "source_truncated", "what": "Gone.", "helps": "recompute earlier"}
    numbers = dict.fromkeys(("expected", "found", "lost", "duplicated", "alien", "last_batch"))
    verdict = verdict_of(result(**numbers, unknown=[unknown]))
    assert verdict.verdict == "unknown"
    assert verdict.lost is None


def test_a_result_that_says_nothing_is_refused() -> None:
    for text in ("", "{}", '{"format": 2}', result(found=None)):
        with pytest.raises(CkptError):
            verdict_of(text)


def test_an_order_is_taken_out_of_the_configuration() -> None:
    document = {"name": "orders", "recompute": {"result": "file:/r.json", "until": 3}}
    request, rest = take_request(json.dumps(document))
    assert request == RecomputeRequest("file:/r.json", 3)
    assert json.loads(rest) == {"name": "orders"}
    assert take_request('{"name": "orders"}') == (None, '{"name": "orders"}')
    assert take_request("not json") == (None, "not json")
    for wrong in ({}, {"result": "r", "depth": 1}):
        with pytest.raises(ConfigError, match="result, until and scratch"):
            take_request(json.dumps({"recompute": wrong}))
