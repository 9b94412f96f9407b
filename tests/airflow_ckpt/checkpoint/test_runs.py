"""The run records beside a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.checkpoint.runs import current_run, run_names
from ckpt_stream.errors import Unreadable
from ckpt_stream.protocol.run_files import unfinished_files
from ckpt_stream.protocol.run_files.run_record import FAILED, FINISHED, RUNNING, STOPPED, Failure, RunRecord

pytestmark = pytest.mark.unit


def folder_with(tmp_path: Path, *states: str) -> FsspecFiles:
    files = FsspecFiles(str(tmp_path))
    for number, state in enumerate(states):
        record = RunRecord(run=f"2026010{number}-x", stream="s", state=state)
        files.write(record.path, record.to_json())
    return files


def test_a_run_that_lives_is_the_current_one_although_a_later_one_was_refused(tmp_path: Path) -> None:
    files = folder_with(tmp_path, STOPPED, RUNNING)
    refused = RunRecord("20260102-x", "s", state=FAILED, failure=Failure("DriverAlive", "run 20260101-x is alive"))
    files.write(refused.path, refused.to_json())
    found = current_run(files)
    assert found is not None
    assert found.run == "20260101-x"


@pytest.mark.parametrize("state", [STOPPED, FINISHED, FAILED])
def test_a_killed_run_whose_file_says_running_for_good_is_not_the_current_one_after_the_next(
    tmp_path: Path, state: str
) -> None:
    found = current_run(folder_with(tmp_path, RUNNING, state))
    assert found is not None
    assert (found.run, found.state) == ("20260101-x", state)


def test_a_run_that_was_refused_is_the_current_one_if_none_lives_any_more(tmp_path: Path) -> None:
    files = folder_with(tmp_path, STOPPED)
    refused = RunRecord("20260102-x", "s", state=FAILED, failure=Failure("DriverAlive", "run 20260101-x is alive"))
    files.write(refused.path, refused.to_json())
    found = current_run(files)
    assert found is not None
    assert found.run == "20260102-x"


def test_without_a_live_run_the_youngest_counts(tmp_path: Path) -> None:
    found = current_run(folder_with(tmp_path, STOPPED, FAILED))
    assert found is not None
    assert found.state == FAILED


def test_a_folder_without_runs_has_no_current_run(tmp_path: Path) -> None:
    assert current_run(FsspecFiles(str(tmp_path))) is None


def test_leftovers_of_writers_are_no_runs(tmp_path: Path) -> None:
    files = folder_with(tmp_path, STOPPED)
    runs = tmp_path / "_ckpt" / "runs"
    (runs / ".20260100-x.json.crc").write_text("x")
    (runs / "20260100-x.json.17.tmp").write_text("half")
    assert run_names(files) == ["20260100-x"]


@pytest.mark.parametrize("torn", ["", '{"format": 1, "run'])
def test_a_newest_run_that_is_being_written_is_waited_for(tmp_path: Path, torn: str) -> None:
    folder_with(tmp_path, STOPPED, RUNNING)
    path = tmp_path / "_ckpt" / "runs" / "20260101-x.json"
    whole = path.read_text()
    path.write_text(torn)
    looks = []

    class Watched(FsspecFiles):
        def read(self, name: str) -> str | None:
            looks.append(name)
            if len(looks) == 3:
                path.write_text(whole)
            return super().read(name)

    found = current_run(Watched(str(tmp_path)))
    assert found is not None
    assert (found.run, found.state, len(looks)) == ("20260101-x", RUNNING, 3)


def test_a_newest_run_that_stays_unreadable_is_neither_none_nor_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_files, "PATIENCE_SECONDS", 0)
    files = folder_with(tmp_path, STOPPED, RUNNING)
    files.write("_ckpt/runs/20260101-x.json", "")
    with pytest.raises(Unreadable, match="20260101-x"):
        current_run(files)
