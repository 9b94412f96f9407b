"""`make demo`, whole and interrupted, as a person runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.leftovers import processes_of

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]


def start(home: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["make", "--no-print-directory", "demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "AIRFLOW_CKPT_HOME": str(home / "stack")},
        text=True,
        stderr=subprocess.PIPE,
        # A group of its own, as a shell gives it, which Ctrl-C reaches as a whole.
        process_group=0,
        # A shell that runs the tests in the background lets its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def test_the_demo_passes_and_leaves_no_process(tmp_path: Path) -> None:
    with start(tmp_path, "ARGS=--json", stdout=subprocess.PIPE) as demo:
        out, err = demo.communicate()

    assert demo.returncode == 0, f"{out}\n{err}"
    *people, last = out.splitlines()
    figures = json.loads(last)
    ours, control = figures["ours"], figures["control"]
    assert figures["result"] == "PASS"
    assert figures["run_state"] == "success"
    assert (ours["kills"], control["kills"]) == (2, 2), "the faults did not hit"
    assert ours["lost"] == ours["duplicated"] == ours["wrong"] == 0
    assert ours["aborted_hidden"] > 0, "no transaction was interrupted"
    assert control["duplicated"] > 0, "the kills did no harm to the control either"
    assert ours["source_records"] == control["source_records"] > 10_000
    for point in ("mid_produce", "commit_sent"):
        assert f"this sink: driver killed with SIGKILL at {point}" in err
    shown = "\n".join(people)
    assert f"{control['duplicated']:,}" in shown
    assert "x: driver killed" in shown
    assert people[-1].startswith("PASS: ")
    assert Path(figures["report"]).read_text().startswith("<!doctype html>")
    assert processes_of(tmp_path) == []


def test_ctrl_c_in_the_middle_leaves_nothing_running(tmp_path: Path) -> None:
    with start(tmp_path, stdout=subprocess.DEVNULL) as demo:
        assert demo.stderr is not None
        seen = []
        for line in demo.stderr:
            seen.append(line)
            if "driver killed" in line:
                break
        else:
            pytest.fail("".join(seen))
        time.sleep(1.0)
        assert len(processes_of(tmp_path)) > 3, "nothing is running that could be left"
        os.killpg(demo.pid, signal.SIGINT)
        last_words = demo.stderr.read()

    assert demo.returncode != 0
    assert "interrupted" in last_words
    assert "Traceback" not in last_words
    assert processes_of(tmp_path) == []
