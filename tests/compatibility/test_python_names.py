"""Names that earlier builds' documentation and example DAGs import: they are where they were, or the changelog says where."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

HERE = Path(__file__).parent
MOVED = dict(
    re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", (HERE.parents[1] / "CHANGELOG.md").read_text(), re.MULTILINE)
)
NAMES = [name for file in sorted(HERE.glob("stored/*/python_names.json")) for name in json.loads(file.read_text())]


def exists(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_users_import_is_there_or_the_changelog_names_its_successor(name: str) -> None:
    assert exists(name) or exists(MOVED[name])


def test_the_changelog_names_no_successor_that_does_not_exist() -> None:
    assert len(MOVED) > 10, "the table was not found"
    assert [new for new in MOVED.values() if not exists(new)] == []


def test_what_the_changelog_calls_moved_is_gone() -> None:
    assert [old for old in MOVED if exists(old)] == []


def test_a_name_that_does_not_exist_is_seen() -> None:
    assert not exists("airflow_ckpt.no_such_module.name")
    assert not exists("airflow_ckpt.streams.stream.NoSuchName")
