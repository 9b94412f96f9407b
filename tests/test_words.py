"""Text names the actor (`the scheduler`, `a user`, `another task`) and the fact (`unknown`, `timed out`), not a vague word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
#: Words that hide who acts or what was found, each in two parts, so that this file itself has none of them.
VAGUE = (("no", "body"), ("some", "body"), ("every", "body"), ("who", "ever"), ("in ", "vain"), ("not ", "told"))
#: Phrases that a reader has to read twice, written in the same way. There is a plain word for each.
QUAINT = (
    ("an", "ew"), ("af", "resh"), ("for ", "ever"), ("sign of ", "life"), ("gives ", "way"), ("gave ", "way"),
    ("given ", "way"), ("the one ", "who"), ("speaks ", "against"), ("speak ", "against"), ("out of its ", "template"),
    ("taken for ", "dead"), ("on all the ", "same"),
)  # fmt: skip
PHRASES = (*VAGUE, *QUAINT)
PATTERN = re.compile(rf"(?<![a-z])(?:{'|'.join(a + b for a, b in PHRASES)})(?![a-z])", re.IGNORECASE)
#: What is searched: whole files here, of the tests the names only.
SEARCHED = (
    "airflow_ckpt", "spark", "dags", "docs", "bench", "scripts", "docker", "docker-compose.yaml", "Makefile", "README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", ".github",
)  # fmt: skip
SUFFIXES = (".py", ".md", ".sh", ".yaml", ".yml", ".Dockerfile", ".example", "")
#: Folders and files that are still to be reworded. Remove a line here when that is done; add none.
TO_REWORD: tuple[str, ...] = ()


def vague_words(text: str) -> list[str]:
    """The vague words of a text, which may continue on the next line or stand in a name with underscores."""
    return [found[0] for found in PATTERN.finditer(re.sub(r"[\s_#]+", " ", text))]


def searched_files() -> Iterator[Path]:
    for name in SEARCHED:
        path = ROOT / name
        yield from sorted(path.rglob("*")) if path.is_dir() else [path]


def names_of_tests(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def is_to_be_reworded(name: str) -> bool:
    return name.startswith(TO_REWORD)


def test_no_text_uses_a_vague_word() -> None:
    found = {}
    for file in searched_files():
        name = str(file.relative_to(ROOT))
        if file.is_file() and file.suffix in SUFFIXES and not is_to_be_reworded(name):
            found[name] = vague_words(file.read_text())

    assert len(found) > 100, "the listing is incomplete"
    assert {name: words for name, words in found.items() if words} == {}


def test_no_name_of_a_test_uses_a_vague_word() -> None:
    names = [
        (str(file.relative_to(ROOT)), name)
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for name in names_of_tests(file.read_text())
    ]

    assert len(names) > 1000, "the listing is incomplete"
    assert [(file, name) for file, name in names if vague_words(name) and not is_to_be_reworded(file)] == []


@pytest.mark.parametrize(("first", "second"), PHRASES)
def test_a_vague_word_is_found_in_prose_and_in_names(first: str, second: str) -> None:
    word = f"{first}{second}"

    assert vague_words(f"# {word.capitalize()} acts") == [word.capitalize()]
    assert vague_words(f"test_{word.replace(' ', '_')}_acts") == [word]
    assert vague_words(f"a{word} and {word}s") == []


def test_a_vague_phrase_is_found_across_two_lines_of_a_comment() -> None:
    assert vague_words("# it was waited for in\n# " + "vain") == ["in vain".replace("vain", "va" + "in")]
