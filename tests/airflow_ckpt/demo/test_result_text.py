"""What the demo shows: a table, a chart with the kills where they were, and a line while it runs."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from airflow_ckpt.demo import demo_stream
from airflow_ckpt.demo.demo_stream import DAG, KILLS, DemoStream
from airflow_ckpt.demo.result_text import COLUMNS, chart, result_as_text
from ckpt_stream.errors import KafkaUnreachable
from ckpt_stream.protocol.topic_ends import TopicEnds

pytestmark = pytest.mark.unit


def shown(renderable: Any) -> str:
    text = StringIO()
    Console(file=text, width=120, no_color=True).print(renderable)
    return text.getvalue()


def test_the_table_has_a_column_for_each_sink_and_the_verdict_is_last() -> None:
    figures = {
        "source_records": 15000, "sink_committed": 5509, "lost": 0, "duplicated": 0, "wrong": 0, "aborted_hidden": 485,
        "kills": 2,
    }  # fmt: skip
    value = {
        "ours": figures,
        "control": {**figures, "duplicated": 1093},
        "batches": {"this sink": {"batches": [], "kills": []}},
        "report": "/home/report.html",
        "result": "PASS",
        "reason": "nothing lost",
    }
    text = shown(result_as_text(value))
    [doubled] = [line for line in text.splitlines() if "duplicated" in line]
    assert [cell.strip() for cell in doubled.split("│")[2:4]] == ["0", "1,093"]
    assert "report: /home/report.html" in text
    assert "http://airflow" not in text
    assert text.splitlines()[-1] == "PASS: nothing lost"
    kept = shown(result_as_text({**value, "url": "http://airflow", "username": "admin", "password": "pw"}))
    assert "http://airflow (admin / pw)" in kept


def test_batches_are_bars_and_a_kill_is_an_x_at_its_time() -> None:
    line = chart("this sink", [(0.0, 10), (50.0, 5), (100.0, 10)], [25.0]).plain
    bars = line.removeprefix(f"{'this sink':<17}")[:COLUMNS]
    assert {place: mark for place, mark in enumerate(bars) if mark != " "} == {
        0: "█",
        int(0.25 * (COLUMNS - 1)): "x",
        int(0.5 * (COLUMNS - 1)): "▄",
        COLUMNS - 1: "█",
    }
    assert line.endswith("3 batches in 100 s, x: driver killed")


def test_a_stream_without_batches_has_no_chart() -> None:
    assert chart("this sink", [], []).plain == "this sink: no batches"


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoStream:
    """A stream with three batches, of which a driver has begun a fourth."""
    stream = DemoStream("demo", "exactly_once", tmp_path, "log", "counts", run_id="run")
    folder = tmp_path / "airflow" / "checkpoints" / "demo"
    for kind in ("offsets", "commits"):
        (folder / kind).mkdir(parents=True)
    for batch in range(4):
        offsets = f'{{"log":{{"0":{batch * 10},"1":{batch}}}}}'
        (folder / "offsets" / str(batch)).write_text(
            f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{offsets}'
        )
        if batch < 3:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    monkeypatch.setattr(
        demo_stream, "topic_ends", lambda admin, topic: TopicEnds({0: 0, 1: 0}, {0: 120, 1: 2}, {0: 120, 1: 2})
    )
    return stream


API: Any = SimpleNamespace(task_states=lambda dag, run: {"submit": "success", "progress": "deferred"})


def test_the_line_tells_batch_lag_kills_and_what_airflow_does(stream: DemoStream) -> None:
    assert stream.progress_line(API, None) == "this sink        batch 2, lag 100, 0 kill(s), in progress"


def test_a_kafka_that_does_not_answer_for_a_moment_does_not_end_the_demo(
    stream: DemoStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(admin: Any, topic: str) -> TopicEnds:
        raise KafkaUnreachable("away")

    monkeypatch.setattr(demo_stream, "topic_ends", away)
    assert stream.progress_line(API, None) == "this sink        batch 2, lag unknown, 0 kill(s), in progress"


def test_a_kill_is_reported_once_when_the_driver_that_died_has_reported_it(stream: DemoStream) -> None:
    assert stream.new_kills() == []
    (stream.home / "demo.kill1").write_text('{"point": "mid_produce", "batch": 2}')
    assert stream.new_kills() == ["this sink: driver killed with SIGKILL at mid_produce of batch 2"]
    assert stream.new_kills() == []
    assert len(stream.hits) == 1


def test_the_dag_is_triggered_with_two_kills_at_different_points_of_a_transaction(stream: DemoStream) -> None:
    sent: list[Any] = []

    def trigger(*given: Any) -> str:
        sent.append(given)
        return "run-1"

    stream.trigger(SimpleNamespace(trigger=trigger))  # type: ignore[arg-type]
    [(dag, form)] = sent
    assert (dag, form["guarantee"], stream.run_id) == (DAG, "exactly_once", "run-1")
    points = [point for point, _, _ in KILLS["exactly_once"]]
    assert points == ["mid_produce", "commit_sent"]
    assert all(f'"point": "{point}"' in form["crash"] for point in points)
