"""The records of design decisions: all of one form, and held by tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
DESIGN = ROOT / "docs" / "design"
RECORDS = sorted(set(DESIGN.glob("*.md")) - {DESIGN / "index.md", DESIGN / "protocol.md"})
HEADINGS = ["Situation", "Decision", "Cost", "Considered instead", "How a test shows it"]

each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)


@each_record
def test_a_record_has_its_headings_and_is_short(record: Path) -> None:
    text = record.read_text()

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert len(text.splitlines()) <= 60


@pytest.fixture(scope="module")
def tests() -> set[str]:
    """The names of all tests of the project."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"^\s*def (test_\w+)", file.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("page", sorted(DESIGN.glob("*.md")), ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_exist(page: Path, tests: set[str]) -> None:
    assert set(re.findall(r"`(test_\w+)`", page.read_text())) <= tests


@each_record
def test_a_record_names_the_tests_that_hold_it(record: Path) -> None:
    shown = record.read_text().partition("## How a test shows it")[2]

    assert len(re.findall(r"`test_\w+`", shown)) >= 2
