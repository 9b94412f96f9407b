"""`airflow-ckpt history` on folders that hold what drivers write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_ckpt.cli import app
from ckpt_stream.protocol.run_files import unfinished_files
from ckpt_stream.protocol.run_files.record_files import RESTARTS, list_to_json, now
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED, RUNNING, STARTING, Failure, RunRecord

pytestmark = pytest.mark.unit

HISTORY = f"{RESTARTS}/00000001.json"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)


NAMES = [f"2026010{day}T000000.000000-{day}" for day in range(1, 4)]


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def record(name: str, *states: str, **values: Any) -> RunRecord:
    made = RunRecord(run=name, stream="orders", driver={"host": "node-7", "pid": 4711}, heartbeat=now(), **values)
    for state in states:
        made.enter(state)
    return made


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A run that failed, one that finished after it, and one that runs."""
    totals = {"batches": 12, "records": 34_567}
    failure = Failure("PoisonRecord", "the word ERROR [0] at orders-0 offset 3", 5)
    for made in (
        record(NAMES[0], STARTING, RUNNING, FAILED, failure=failure),
        record(NAMES[1], STARTING, RUNNING, FINISHED, totals=totals, reconciliation="batch 5 in doubt"),
        record(NAMES[2], STARTING, RUNNING),
    ):
        write(tmp_path, made.path, made.to_json())
    restart = {"time": now(), "run": NAMES[1], "after_run": NAMES[0], "after_state": "FAILED", "reason": "Poison [x]"}
    write(tmp_path, HISTORY, list_to_json([restart]))
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["history", *arguments], env={"COLUMNS": "250"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def history(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(*arguments, "--json")
    value: dict[str, Any] = json.loads(out)
    return code, value


def test_each_run_is_shown_with_what_became_of_it(checkpoint: Path) -> None:
    code, out, _ = run(str(checkpoint))
    assert code == 0
    failed, finished, running = (next(line for line in out.splitlines() if name in line) for name in NAMES)
    assert "FAILED" in failed
    assert "PoisonRecord: the word ERROR [0] at orders-0 offset 3" in failed
    assert "node-7 / 4711" in failed
    assert "FINISHED" in finished
    assert "34,567" in finished
    assert "RUNNING" in running
    assert "heartbeat" in running


def test_the_states_of_each_run_and_the_restarts_are_shown(checkpoint: Path) -> None:
    _, out, _ = run(str(checkpoint))
    assert "batch 5 in doubt" in out
    states = next(line for line in out.splitlines() if NAMES[0] in line and "STARTING" in line)
    assert states.index("STARTING") < states.index("RUNNING") < states.index("FAILED")
    restart = next(line for line in out.splitlines() if "Poison [x]" in line)
    assert NAMES[1] in restart
    assert NAMES[0] in restart


def test_the_same_facts_are_there_as_json(checkpoint: Path) -> None:
    code, value = history(str(checkpoint))
    assert (code, value["total"], value["findings"]) == (0, 3, [])
    failed, finished, running = value["runs"]
    assert (failed["failure"]["batch"], failed["ended"]) == (5, failed["history"][-1]["time"])
    assert (finished["batches"], finished["records"]) == (12, 34_567)
    assert (running["ended"], running["state"]) == (None, "RUNNING")
    assert value["restarts"][0]["after_run"] == NAMES[0]


def test_only_so_many_of_the_newest_runs_are_shown(checkpoint: Path) -> None:
    _, value = history(str(checkpoint), "--runs", "2")
    assert [one["run"] for one in value["runs"]] == NAMES[1:]
    assert value["total"] == 3
    assert "2 of 3" in run(str(checkpoint), "--runs", "2")[1]


@pytest.mark.parametrize("text", ["", "{", '{"format": 99}', '{"format": 1}'])
def test_a_run_record_that_cannot_be_read_is_named_and_the_others_are_shown(checkpoint: Path, text: str) -> None:
    write(checkpoint, f"_ckpt/runs/{NAMES[1]}.json", text)
    code, value = history(str(checkpoint))
    assert code == 1
    assert [one["run"] for one in value["runs"]] == [NAMES[0], NAMES[2]]
    (finding,) = value["findings"]
    assert (finding["kind"], finding["file"]) == ("run_record", f"_ckpt/runs/{NAMES[1]}.json")
    assert f"_ckpt/runs/{NAMES[1]}.json" in run(str(checkpoint))[1]


def test_a_binary_run_record_is_named_as_well(checkpoint: Path) -> None:
    (checkpoint / f"_ckpt/runs/{NAMES[1]}.json").write_bytes(b"\xff\xfe")
    assert [finding["kind"] for finding in history(str(checkpoint))[1]["findings"]] == ["run_record"]


def test_a_restart_history_that_cannot_be_read_is_named_and_the_runs_are_shown(checkpoint: Path) -> None:
    write(checkpoint, HISTORY, '{"format": 1, "entries": 5}')
    code, value = history(str(checkpoint))
    assert (code, len(value["runs"]), value["restarts"]) == (1, 3, [])
    assert [(finding["kind"], finding["file"]) for finding in value["findings"]] == [("restart_history", HISTORY)]


def test_a_damaged_intent_is_named(checkpoint: Path) -> None:
    write(checkpoint, "_ckpt/intents/00000007.json", '{"format": 1}')
    code, value = history(str(checkpoint))
    assert (code, len(value["restarts"])) == (1, 1)
    assert [(found["kind"], found["file"]) for found in value["findings"]] == [
        ("intent", "_ckpt/intents/00000007.json")
    ]


def test_a_folder_without_runs_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    code, out, err = run(str(tmp_path))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert str(tmp_path) in err
