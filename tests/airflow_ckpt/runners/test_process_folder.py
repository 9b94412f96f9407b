"""What a driver leaves in its folder: its log, its handle, and the folders of old runs."""

from __future__ import annotations

import json
import socket
import stat
import sys
from pathlib import Path

import pytest

from airflow_ckpt.runners import launcher, process, work_folders
from airflow_ckpt.runners.process import ProcessRunner
from ckpt_stream.machine.process_identity import boot_id, process_started
from tests.airflow_ckpt.runners.driver_processes import Start, end_of

pytestmark = pytest.mark.unit


# --- the log -----------------------------------------------------------------------------------------------------------


def test_the_log_can_be_read_by_its_owner_alone(start: Start) -> None:
    log = Path(str(start().details["log"]))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_end_of_the_log_is_told_without_reading_all_of_it(runner: ProcessRunner, start: Start) -> None:
    handle = start("sh", "-c", "seq 1 5000; printf '\\377\\n' >&2")
    end_of(runner, handle)
    assert runner.log_tail(handle, 3) == "4999\n5000\n�"


def test_a_log_that_is_gone_is_said(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    end_of(runner, handle)
    Path(str(handle.details["log"])).unlink()
    assert "cannot be read" in runner.log_tail(handle)


def test_a_handle_names_machine_boot_and_start_and_no_secret(start: Start, tmp_path: Path) -> None:
    handle = start(secrets=(str(tmp_path / "secrets.conf"),), PASSWORD="hunter2")
    assert handle.details["host"] == socket.gethostname()
    assert handle.details["boot"] == boot_id()
    assert handle.details["started"] == process_started(int(handle.id))
    assert "hunter2" not in json.dumps(handle.as_dict())


# --- what is left behind -----------------------------------------------------------------------------------------------


def test_a_start_deletes_the_folders_of_old_runs_and_no_other(runner: ProcessRunner, start: Start) -> None:
    alive = start(token="alive")
    (runner.root / "alive" / "stream.json").write_text('{"checkpoint": "/data/orders"}')
    for number in range(work_folders.KEEP_FOLDERS + 3):
        folder = runner.root / f"old-{number:02d}"
        folder.mkdir()
        (folder / "stream.json").write_text('{"checkpoint": "/data/orders"}')
        (folder / "exit.json").write_text('{"code": 1}')
    start(token="new")
    left = sorted(path.name for path in runner.root.iterdir())
    assert left[0] == "alive"
    assert len([name for name in left if name.startswith("old-")]) == work_folders.KEEP_FOLDERS
    assert runner.look(alive).live


def test_the_log_of_a_driver_is_bounded_while_it_writes(
    runner: ProcessRunner, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = tmp_path / "launcher_of_small_logs.py"
    small.write_text(Path(launcher.__file__).read_text().replace("32 * 1024 * 1024", "100_000"))
    monkeypatch.setattr(process, "LAUNCHER", small)
    lines = "import time\nfor n in range(60):\n  print(str(n) * 5000, flush=True); time.sleep(0.02)\nprint('the end')"
    handle = start(sys.executable, "-c", lines)
    assert end_of(runner, handle).exit_code == 0
    folder = Path(str(handle.details["folder"]))
    assert (folder / "driver.log.1").exists(), "the log never grew beyond its bound"
    assert (folder / "driver.log").stat().st_size < 400_000
    assert stat.S_IMODE((folder / "driver.log.1").stat().st_mode) == 0o600
    assert runner.log_tail(handle, 1) == "the end"


def test_the_end_of_a_log_goes_back_into_what_was_moved_aside(runner: ProcessRunner, start: Start) -> None:
    handle = start("true")
    end_of(runner, handle)
    folder = Path(str(handle.details["folder"]))
    (folder / "driver.log").write_text("".join(f"line {n}\n" for n in range(8)))
    launcher.bound(folder / "driver.log", 1_000)
    assert not (folder / "driver.log.1").exists()
    launcher.bound(folder / "driver.log", 10)
    with (folder / "driver.log").open("a") as log:
        log.write("line 8\n")
    assert runner.log_tail(handle, 3).splitlines() == ["line 6", "line 7", "line 8"]
