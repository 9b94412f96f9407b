"""`airflow-ckpt inspect` on folders that hold what Spark and the driver write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_ckpt.cli import app
from ckpt_stream.protocol.checkpoint.checkpoint_log import RESTORE, TORN
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED, Failure, RunRecord

pytestmark = pytest.mark.unit

QUERY = "6f412f34-bb6b-4ac9-89f5-2feca2991dc9"


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Three committed batches of a stream with state, between batches."""
    write(tmp_path, "metadata", json.dumps({"id": QUERY}))
    for n in range(3):
        meta = {"batchWatermarkMs": 1700000000000, "batchTimestampMs": 1794944818086, "conf": {}}
        ends = {"orders": {str(p): 1000 * (n + 1) + p for p in (0, 10, 2)}}
        write(tmp_path, f"offsets/{n}", f"v1\n{json.dumps(meta)}\n{json.dumps(ends)}")
        write(tmp_path, f"commits/{n}", 'v1\n{"nextBatchWatermarkMs":0}')
        write(tmp_path, f"state/0/0/{n + 1}.delta", "x" * 1500)
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}, "stateStoreInfo": []}
    write(tmp_path, "state/0/_metadata/metadata", f"v1\n{json.dumps(operator)}")
    record = RunRecord(run="20260101T000000.000000-a", stream="orders")
    record.enter(FINISHED)
    write(tmp_path, record.path, record.to_json())
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["inspect", *arguments], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def inspected(checkpoint: Path) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(str(checkpoint), "--json")
    value: dict[str, Any] = json.loads(out)
    return code, value


def test_a_healthy_checkpoint_is_shown_whole_with_exit_code_0(checkpoint: Path) -> None:
    code, out, _ = run(str(checkpoint))
    assert code == 0
    for words in (
        QUERY,
        "2026-11-17 19:46:58 UTC",
        "2023-11-14 22:13:20 UTC",
        "stateStoreSave",
        "4.6 kB",
        "is FINISHED",
    ):
        assert words in out
    assert "nothing is wrong" in out


def test_the_offsets_are_shown_by_partition_in_their_order_with_what_the_batch_read(checkpoint: Path) -> None:
    _, out, _ = run(str(checkpoint))
    rows = [line.replace("│", " ").split() for line in out.splitlines() if "orders " in line and "│" in line]
    assert rows == [
        ["orders", "0", "2,000", "3,000", "1,000"],
        ["orders", "2", "2,002", "3,002", "1,000"],
        ["orders", "10", "2,010", "3,010", "1,000"],
    ]


def test_a_partition_that_came_with_the_batch_has_no_start(checkpoint: Path) -> None:
    text = (checkpoint / "offsets/2").read_text().replace('"orders": {', '"orders": {"11": 5, ')
    write(checkpoint, "offsets/2", text)
    _, out, _ = run(str(checkpoint))
    (row,) = [line.replace("│", " ").split() for line in out.splitlines() if " 11 " in line]
    assert row == ["orders", "11", "-", "5", "-"]


def test_the_same_facts_are_there_as_json(checkpoint: Path) -> None:
    code, value = inspected(checkpoint)
    assert code == 0
    assert (value["query_id"], value["batches"], value["newest"], value["committed"]) == (QUERY, 3, 2, 2)
    assert value["in_doubt"] is None
    assert value["start"]["orders"]["0"] == 2000
    assert value["committed_offsets"]["orders"]["10"] == 3010
    assert (value["state"][0]["partitions"], value["state"][0]["version"]) == (1, 3)
    assert (value["runs"], value["run"]["state"], value["findings"]) == (1, "FINISHED", [])


def test_a_batch_in_doubt_is_shown_and_is_nothing_wrong(checkpoint: Path) -> None:
    (checkpoint / "commits/2").unlink()
    code, out, _ = run(str(checkpoint))
    assert code == 0
    assert "batch 2" in out


def test_damage_is_named_with_what_helps_and_exit_code_1(checkpoint: Path) -> None:
    write(checkpoint, "offsets/2", "v1\n{")
    code, out, _ = run(str(checkpoint))
    assert code == 1
    assert "torn: offsets/2 " in out
    assert RESTORE in out
    (finding,) = inspected(checkpoint)[1]["findings"]
    assert (finding["kind"], finding["file"], finding["helps"]) == (TORN, "offsets/2", RESTORE)


def test_no_checkpoint_is_exit_code_1(tmp_path: Path) -> None:
    code, value = inspected(tmp_path / "nowhere")
    assert code == 1
    assert [finding["kind"] for finding in value["findings"]] == ["no_checkpoint"]
    assert run(str(tmp_path / "nowhere"))[0] == 1


@pytest.mark.parametrize("text", ["{", '{"format": 99}'])
def test_a_run_record_that_cannot_be_read_is_a_finding_beside_the_rest(checkpoint: Path, text: str) -> None:
    write(checkpoint, "_ckpt/runs/20260102T000000.000000-b.json", text)
    code, value = inspected(checkpoint)
    assert (code, value["committed"], value["runs"]) == (1, 2, 2)
    assert [finding["kind"] for finding in value["findings"]] == ["run_record"]


def test_brackets_in_a_failure_are_not_taken_for_colours(checkpoint: Path) -> None:
    record = RunRecord(run="20260102T000000.000000-b", stream="orders", failure=Failure("Bad", "lanes [red] [0] [/x]"))
    record.enter(FAILED)
    write(checkpoint, record.path, record.to_json())
    assert "Bad: lanes [red] [0] [/x]" in run(str(checkpoint))[1]


def test_a_watermark_beyond_the_calendar_is_shown_as_it_is(checkpoint: Path) -> None:
    write(checkpoint, "commits/2", 'v1\n{"nextBatchWatermarkMs":9223372036854775807}')
    code, out, _ = run(str(checkpoint))
    assert code == 0
    assert "9223372036854775807 ms" in out


def test_a_path_that_airflow_cannot_read_is_one_line() -> None:
    code, out, err = run("hdfs:///a")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "--webhdfs http://namenode:9870" in err


def test_a_storage_that_does_not_answer_is_one_line() -> None:
    code, out, err = run("hdfs://nn:8020/a", "--webhdfs", "http://127.0.0.1:9")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "hdfs://nn:8020/a" in err
