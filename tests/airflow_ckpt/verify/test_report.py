"""The verdict as a page: self-contained, with what the verdict holds and nothing invented."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from airflow_ckpt.verify.report import as_html
from airflow_ckpt.verify.verdict import BatchSums, Finding, Verdict

pytestmark = pytest.mark.unit


def batches(count: int, source: int | None = 20) -> list[BatchSums]:
    return [BatchSums(n, f"2026-01-01T00:00:{n:02d}.000+00:00", 10, 10, source) for n in range(count)]


class Figures(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "svg":
            self.labels.append(given["aria-label"] or "")
        self.outside += [value for name, value in attrs if name in ("src", "href") and value]


def figures(page: str) -> Figures:
    parser = Figures()
    parser.feed(page)
    return parser


def test_input_and_output_are_drawn_over_time() -> None:
    page = as_html(Verdict("s", "sink", batches=batches(5)).as_dict())
    assert figures(page).labels == ["records per batch", "throughput"]
    assert re.search(r"<figcaption>[^<]* 20 [^<]*</figcaption>", page), "source offsets per second"
    assert figures(page).outside == [], "the page loads nothing from elsewhere"


def test_what_is_not_known_is_not_drawn() -> None:
    for without in (batches(5, source=None), batches(1)):
        assert figures(as_html(Verdict("s", "sink", batches=without).as_dict())).labels == ["records per batch"]
    same_time = [BatchSums(n, "2026-01-01T00:00:00+00:00", 1, 1, 1) for n in range(3)]
    assert figures(as_html(Verdict("s", "sink", batches=same_time).as_dict())).labels == ["records per batch"]
    odd_time = [BatchSums(n, "yesterday", 1, 1, 1) for n in range(3)]
    assert figures(as_html(Verdict("s", "sink", batches=odd_time).as_dict())).labels == ["records per batch"]
    assert figures(as_html(Verdict("s", "foreign").as_dict())).labels == []


def test_text_of_others_is_escaped() -> None:
    verdict = Verdict("<s>", "recompute", findings=[Finding("lost", "key '<script>'", "look")])
    page = as_html(verdict.as_dict())
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_lag_and_time_per_batch_are_drawn_from_the_run_record() -> None:
    run = [{"batch": n, "lag": 100 - n, "durations_ms": {"triggerExecution": 50 + n}} for n in range(5)]
    page = as_html(Verdict("s", "sink", batches=batches(5)).as_dict(), run)
    assert figures(page).labels[-2:] == ["lag", "time per batch"]
    assert "100 records" in page
    without = as_html(Verdict("s", "sink", batches=batches(5)).as_dict(), [{"batch": 1, "lag": None}])
    assert "lag" not in figures(without).labels
