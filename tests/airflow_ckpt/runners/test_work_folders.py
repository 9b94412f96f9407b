"""Folders of old runs are deleted; one whose driver lives, or might, never is."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_ckpt.runners.work_folders import HOST, SUBMIT_SECONDS, note_host, prune
from ckpt_stream.machine.process_identity import boot_id, process_started

pytestmark = pytest.mark.unit

DEAD = {"pid": os.getpid(), "started": -1.0}
ALIVE = {"pid": os.getpid(), "started": process_started(os.getpid())}


def a_folder(root: Path, folder_name: str, age: float, **document: Any) -> Path:
    """A folder that was made so many seconds ago, for a driver that has ended."""
    folder = root / folder_name
    folder.mkdir()
    (folder / "stream.json").write_text(json.dumps({"checkpoint": "/data/orders", **document}))
    then = time.time() - age
    os.utime(folder / "stream.json", (then, then))
    (folder / "exit.json").write_text('{"code": 0}')
    return folder


def unended(folder: Path, driver: dict[str, Any] | None, **host: str) -> Path:
    """Its driver left no exit status."""
    (folder / "exit.json").unlink()
    note_host(folder)
    if driver is not None:
        (folder / "driver.json").write_text(json.dumps(driver))
    if host:
        (folder / HOST).write_text(json.dumps({"host": socket.gethostname(), "boot": boot_id(), **host}))
    return folder


def names(root: Path) -> list[str]:
    return sorted(folder.name for folder in root.iterdir())


def test_the_newest_folders_of_each_stream_and_of_its_jobs_are_kept(tmp_path: Path) -> None:
    for age in range(5):
        a_folder(tmp_path, f"orders-{age}", age)
        a_folder(tmp_path, f"payments-{age}", age, checkpoint="/data/payments")
        a_folder(tmp_path, f"recompute-{age}", age, recompute={})
        a_folder(tmp_path, f"scan-{age}", age, checkpoint=None, name="verify orders", targets=[])
    prune(tmp_path, keep=2)
    kinds = ("orders", "payments", "recompute", "scan")
    assert names(tmp_path) == sorted(f"{kind}-{age}" for kind in kinds for age in (0, 1))


def test_a_folder_whose_driver_lives_or_cannot_be_seen_is_kept(tmp_path: Path) -> None:
    a_folder(tmp_path, "newest", 0)
    unended(a_folder(tmp_path, "alive", 5000), ALIVE)
    unended(a_folder(tmp_path, "child-alive", 5000), {**DEAD, "child": ALIVE["pid"], "child_started": ALIVE["started"]})
    unended(a_folder(tmp_path, "elsewhere", 5000), DEAD, host="another-machine")
    unended(a_folder(tmp_path, "another-container", 5000), DEAD, boot=f"{boot_id().split()[0]} pid:[1]")
    unended(a_folder(tmp_path, "being-submitted", SUBMIT_SECONDS - 600), None)
    (unended(a_folder(tmp_path, "unknown-place", 5000), DEAD) / HOST).unlink()
    kept = names(tmp_path)
    unended(a_folder(tmp_path, "dead", 5000), DEAD)
    unended(a_folder(tmp_path, "before-the-last-start", 5000), ALIVE, boot="another-start pid:[1]")
    unended(a_folder(tmp_path, "submitted-long-ago", SUBMIT_SECONDS + 600), None)
    prune(tmp_path, keep=1)
    assert names(tmp_path) == kept


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "stream.json").write_text("not JSON")
    (tmp_path / "a-file").write_text("x")
    a_folder(tmp_path, "newest", 0)
    prune(tmp_path, keep=1)
    assert names(tmp_path) == ["a-file", "newest", "notes"]


def test_without_a_work_folder_there_is_nothing_to_do(tmp_path: Path) -> None:
    prune(tmp_path / "nothing")
