"""The demo's own count: it finds what is lost, doubled and wrong, and passes only if the faults were real."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_ckpt.demo import sink_count
from airflow_ckpt.demo.run_demo import judge
from airflow_ckpt.demo.sink_count import SinkCount, count_sink

pytestmark = pytest.mark.unit

EXPECTED = {("10.0.0.1", 0): 3, ("10.0.0.2", 5): 1}


def row(ip: str, start: int, times: int) -> str:
    return json.dumps({"ip": ip, "window_start": f"1970-01-01T00:00:{start:02d}.000Z", "count": times})


ONE, TWO = row("10.0.0.1", 0, 3), row("10.0.0.2", 5, 1)


def counted(monkeypatch: pytest.MonkeyPatch, committed: list[str], *aborted: str) -> SinkCount:
    def read(kafka: Mapping[str, Any], topic: str, isolation: str = "read_committed") -> list[str]:
        return committed if isolation == "read_committed" else [*committed, *aborted]

    monkeypatch.setattr(sink_count, "read_values", read)
    return count_sink({}, "sink", EXPECTED, source_records=4, kills=2)


@pytest.mark.parametrize(
    ("committed", "found"),
    [
        ([ONE, TWO], {}),
        ([TWO], {"lost": 1}),
        ([], {"lost": 2}),
        ([ONE, TWO, ONE, ONE], {"duplicated": 2}),
        ([ONE, row("10.0.0.2", 5, 2)], {"wrong": 1}),
        # A window that was never in the source is no duplicate, but it is wrong.
        ([ONE, TWO, row("10.0.0.3", 5, 1)], {"wrong": 1}),
    ],
)
def test_what_is_lost_doubled_or_wrong_is_counted(
    monkeypatch: pytest.MonkeyPatch, committed: list[str], found: dict[str, int]
) -> None:
    seen = counted(monkeypatch, committed)
    assert {k: v for k in ("lost", "duplicated", "wrong") if (v := getattr(seen, k))} == found
    assert (seen.sink_committed, seen.source_records, seen.kills) == (len(committed), 4, 2)


def test_aborted_copies_are_counted_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = counted(monkeypatch, [ONE, TWO], ONE, ONE, TWO)
    assert (seen.aborted_hidden, seen.duplicated) == (3, 0)


GOOD = SinkCount("sink", 4, 2, lost=0, duplicated=0, wrong=0, aborted_hidden=1, kills=2)
DOUBLED = replace(GOOD, duplicated=7)


@pytest.mark.parametrize(
    ("ours", "control", "state", "words"),
    [
        (GOOD, DOUBLED, "success", "Spark's own sink doubled 7"),
        (replace(GOOD, lost=1), DOUBLED, "success", "1 lost"),
        (replace(GOOD, duplicated=1), DOUBLED, "success", "1 duplicated"),
        (replace(GOOD, wrong=1), DOUBLED, "success", "1 wrong"),
        (replace(GOOD, kills=1), DOUBLED, "success", "killed 1 and 2 times"),
        (GOOD, replace(DOUBLED, kills=1), "success", "killed 2 and 1 times"),
        (GOOD, DOUBLED, "failed", "ended failed"),
        (GOOD, GOOD, "success", "proves nothing"),
    ],
)
def test_it_passes_only_if_our_sink_is_right_and_the_faults_were_real(
    ours: SinkCount, control: SinkCount, state: str, words: str
) -> None:
    passed, reason = judge(ours, control, state)
    assert passed is (ours is GOOD and control is DOUBLED and state == "success")
    assert words in reason
