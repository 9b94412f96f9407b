"""Every Python file is short enough to read in one go; the test fails when one grows beyond that."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
MOST_LINES = 350
#: Files that are still to be split. Remove a file here when it is split; add none.
TOO_LONG: set[str] = set()


def python_files() -> list[str]:
    """Every Python file of the repository that exists, by its path."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).exists()]


def lines(name: str) -> int:
    return len((ROOT / name).read_text().splitlines())


def test_no_python_file_is_longer_than_350_lines() -> None:
    files = python_files()

    assert len(files) > 300, "the listing is incomplete"
    assert {name: count for name in files if (count := lines(name)) > MOST_LINES and name not in TOO_LONG} == {}
