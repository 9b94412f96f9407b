"""`airflow-ckpt demo` around the demo itself: its last line, its exit code, and what it leaves running."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_ckpt.cli import app
from airflow_ckpt.demo import run_demo
from airflow_ckpt.exceptions import StackError
from airflow_ckpt.local import stack

pytestmark = pytest.mark.unit

FIGURES = {
    "source_records": 4,
    "sink_committed": 2,
    "lost": 0,
    "duplicated": 0,
    "wrong": 0,
    "aborted_hidden": 1,
    "kills": 2,
}


class World:
    """The stack is up while the demo runs; `downs` are the homes that were taken down."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "stack-demo"
        self.downs: list[Path] = []
        self.result: Any = "PASS"

    def run_demo(self, home: Path, announce: Any, progress: Any) -> dict[str, Any]:
        assert home == self.home
        assert self.downs == [home], "an earlier demo may still be up"
        assert not home.exists(), "and its data would count"
        home.mkdir()
        announce("running")
        if isinstance(self.result, BaseException):
            raise self.result
        (home / "made.html").write_text("<html>")
        return {
            "result": self.result, "reason": "because", "ours": FIGURES, "control": FIGURES, "batches": {},
            "report": str(home / "made.html"), "seconds": 1.0,
        }  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    world.home.mkdir()
    airflow = SimpleNamespace(url="http://127.0.0.1:1", username="admin", password="hunter2")
    monkeypatch.setenv("AIRFLOW_CKPT_HOME", str(tmp_path / "stack"))
    monkeypatch.setattr(run_demo, "run_demo", world.run_demo)
    monkeypatch.setattr(stack, "down", world.downs.append)
    monkeypatch.setattr(stack, "airflow_of", lambda home: airflow)
    return world


def demo(*options: str) -> Any:
    return CliRunner().invoke(app, ["demo", *options])


def test_a_pass_is_exit_code_0_and_everything_is_stopped(world: World) -> None:
    done = demo()
    assert (done.exit_code, world.downs) == (0, [world.home] * 2)
    assert "PASS: because" in done.stdout
    assert (world.home / "report.html").read_text() == "<html>"


def test_a_fail_is_exit_code_1_and_everything_is_stopped(world: World) -> None:
    world.result = "FAIL"
    done = demo()
    assert (done.exit_code, world.downs) == (1, [world.home] * 2)
    assert "FAIL: because" in done.stdout


def test_the_same_figures_are_the_last_line_for_programs(world: World) -> None:
    done = demo("--json")
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["result"], last["ours"], last["report"]) == ("PASS", FIGURES, str(world.home / "report.html"))
    assert done.exit_code == 0


@pytest.mark.parametrize(("error", "code"), [(StackError("no Java"), 1), (KeyboardInterrupt(), 130)])
def test_a_demo_that_breaks_off_stops_everything_even_if_it_was_to_keep_it(
    world: World, error: BaseException, code: int
) -> None:
    world.result = error
    assert (demo("--keep").exit_code, world.downs) == (code, [world.home] * 2)


def test_keep_leaves_it_up_and_says_where_and_how_to_end_it(world: World) -> None:
    done = demo("--keep", "--json")
    assert (done.exit_code, world.downs) == (0, [world.home])
    assert "http://127.0.0.1:1 (admin / hunter2)" in done.stdout
    assert f"airflow-ckpt local down --home {world.home}" in done.stderr
    # Programs' logs are kept: the password is for the screen.
    assert "hunter2" not in done.stdout.splitlines()[-1]
