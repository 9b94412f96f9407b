"""Reads the pages of the documentation: their blocks of code, their tables, and the scripts that make some of them."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
AT_THE_ROOT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")]
PAGES = [*AT_THE_ROOT, *sorted(DOCS.rglob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of a page in one language."""
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


def rows(page: Path) -> dict[str, list[str]]:
    """Every row of every table whose first cell is a name, by that name; the other cells."""
    found: dict[str, list[str]] = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            found[name[1]] = cells[1:]
    return found


def script(name: str) -> ModuleType:
    """A module of scripts/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
