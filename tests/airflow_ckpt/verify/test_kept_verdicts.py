"""What is kept of a verdict beside the checkpoint, and what of it must never be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.checkpoint.fsspec_files import FsspecFiles
from airflow_ckpt.verify import kept_verdicts
from airflow_ckpt.verify.kept_verdicts import VERDICTS, delete_old_verdicts, keep_verdict
from airflow_ckpt.verify.verdict import SINK, TRUNCATED, Finding, Verdict
from airflow_ckpt.verify.verified_until import FILE

pytestmark = pytest.mark.unit


def violated() -> dict[str, Any]:
    return Verdict("orders", SINK, findings=[Finding("duplicate", "One record is there twice.")]).as_dict()


def position(files: FsspecFiles) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(files.read(FILE) or "{}")
    return known


@pytest.fixture
def _damaged_run_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(files: FsspecFiles) -> None:
        raise OSError("the run record is damaged")

    monkeypatch.setattr(kept_verdicts, "current_run", unreadable)


def test_only_the_newest_verdicts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_verdicts, "KEPT", 2)
    files = FsspecFiles(str(tmp_path))
    for name in ("20260101T1", "20260101T2", "20260101T3"):
        for kind in ("json", "html"):
            files.write(f"{VERDICTS}/{name}.{kind}", "x")
    files.write(f"{VERDICTS}/0a1b2c.result", "of a job that runs")
    delete_old_verdicts(files)
    kept = ["0a1b2c.result"] + [f"20260101T{n}.{kind}" for n in (2, 3) for kind in ("html", "json")]
    assert files.names(VERDICTS) == kept


def test_a_violation_is_noted_although_old_verdicts_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: FsspecFiles, name: str) -> None:
        tried.append(name)
        raise PermissionError(name)

    tried: list[str] = []
    monkeypatch.setattr(kept_verdicts, "KEPT", 0)
    monkeypatch.setattr(kept_verdicts, "delete_old_verdicts", delete_all)
    monkeypatch.setattr(FsspecFiles, "remove", denied)
    files = FsspecFiles(str(tmp_path))
    report = keep_verdict(files, violated())
    assert tried
    assert files.exists(report)
    assert position(files)[SINK]["verdict"] == "violated"


def delete_all(files: FsspecFiles) -> None:
    """As if there were more verdicts than are kept."""
    kept_verdicts.delete_old_files(files, [f"{VERDICTS}/{name}" for name in files.names(VERDICTS)])


@pytest.mark.usefixtures("_damaged_run_record")
def test_a_violation_is_noted_although_the_run_record_cannot_be_read(tmp_path: Path) -> None:
    files = FsspecFiles(str(tmp_path))
    with pytest.raises(OSError, match="damaged"):
        keep_verdict(files, violated())
    assert position(files)[SINK]["verdict"] == "violated"
    (kept,) = files.names(VERDICTS)
    assert json.loads(files.read(f"{VERDICTS}/{kept}") or "")["verdict"] == "violated"


@pytest.mark.usefixtures("_damaged_run_record")
def test_a_range_that_can_never_be_verified_is_not_passed_over_before_it_was_reported(tmp_path: Path) -> None:
    files = FsspecFiles(str(tmp_path))
    gone = Verdict("orders", SINK, findings=[Finding(TRUNCATED, "Retention.", violation=False)])
    gone.reached = {"batch": 7, "query_id": "q"}
    with pytest.raises(OSError, match="damaged"):
        keep_verdict(files, gone.as_dict())
    assert position(files) == {}
