"""The documentation, held against the code: its examples run, its links and commands exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main
from airflow.models.connection import Connection

from airflow_ckpt.cli import app
from airflow_ckpt.hooks.connections import kafka_from_connection, spark_target
from ckpt_stream.kafka.java_settings import java_settings
from tests.support.docs_pages import BLOCK, DOCS, PAGES, ROOT, blocks, rows

pytestmark = pytest.mark.unit

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
#: Where a command of ours begins in a line of a terminal.
OURS = re.compile(r"(?:^|\s)(?:\.venv/bin/)?airflow-ckpt (?=\S)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


# --- examples -----------------------------------------------------------------------------------------------------


@each_page
def test_every_python_example_compiles(page: Path) -> None:
    for number, code in enumerate(blocks(page, "python")):
        compile(code, f"{page.name}, block {number}", "exec")


@each_page
def test_every_example_of_the_provider_runs(page: Path) -> None:
    """The blocks of a page, one after the other, as a DAG file is imported."""
    namespace: dict[str, Any] = {"__name__": "example"}
    for number, code in enumerate(blocks(page, "python")):
        if "airflow_ckpt import" in code or ("airflow_ckpt" in namespace.get("seen", "") and "pyspark" not in code):
            namespace["seen"] = namespace.get("seen", "") + code
            exec(compile(code, f"{page.name}, block {number}", "exec"), namespace)  # noqa: S102 - our own examples
    for dag in _dags(namespace):
        assert dag.task_ids, f"{dag.dag_id} has no tasks"
        dag.check_cycle()


def test_the_examples_declare_dags() -> None:
    """Else the test above would pass by running nothing."""
    declaring = [page.name for page in PAGES if any("with DAG(" in code for code in blocks(page, "python"))]

    assert declaring == ["README.md", "declare-a-stream.md", "resume.md"]


def _dags(namespace: Mapping[str, Any]) -> Iterator[Any]:
    from airflow.sdk import DAG

    yield from (value for value in namespace.values() if isinstance(value, DAG))


def test_the_error_that_the_page_shows_is_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    shown = ""
    for code in blocks(DOCS / "declare-a-stream.md", "python"):
        if "print(error)" in code:
            shown = code.partition("print(error)  # ")[2].strip()
        exec(code, namespace)  # noqa: S102 - our own examples

    assert shown
    assert capsys.readouterr().out.strip() == shown


# --- links and commands -------------------------------------------------------------------------------------------


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", page.read_text())):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in _anchors(found), f"{page.name}: {target}"


def test_the_table_of_contents_names_every_page() -> None:
    """Those of a folder are named by the folder's own one."""
    for index in DOCS.rglob("index.md"):
        named = {target for target in LINK.findall(index.read_text()) if "/" not in target}

        assert named == {page.name for page in index.parent.glob("*.md")} - {"index.md"}
        assert index.parent == DOCS or f"{index.parent.name}/index.md" in (DOCS / "index.md").read_text()


@each_page
def test_every_command_and_option_exists(page: Path) -> None:
    text = page.read_text()
    lines = [line for code in blocks(page, "") for line in re.sub(r"\\\n", " ", code).splitlines()]
    lines += INLINE.findall(BLOCK.sub("", text))
    for line in lines:
        for found in OURS.finditer(line):
            _check_command(line[found.end() :], f"{page.name}: {line}")


def _check_command(words: str, where: str) -> None:
    command: Any = typer.main.get_command(app)
    options = {name for p in command.params for name in p.opts}
    parts = re.split(r"[ |]+", re.sub(r"<[^>]*>", "X", words))
    if "|" in words:
        # `a | b | c`: several commands of one group in one breath.
        group = command.commands.get(parts[0])
        known = getattr(group, "commands", None) or command.commands
        assert set(parts[1:] if known is not command.commands else parts) <= set(known), where
        return
    for word in shlex.split(" ".join(parts)):
        if word.startswith("--"):
            assert word.partition("=")[0] in options | {"--help"}, where
        elif commands := getattr(command, "commands", None):
            assert word in commands, where
            command = commands[word]
            options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}


def _connections(page: Path) -> Iterator[dict[str, str]]:
    """The connections that a page tells one to add."""
    for code in blocks(page, ""):
        for command in re.findall(
            r"^airflow connections add .*?(?=^airflow |^pip |\Z)", code, re.MULTILINE | re.DOTALL
        ):
            _, _, _, conn_id, *words = shlex.split(command)
            yield {"conn_id": conn_id, **dict(zip((w.lstrip("-") for w in words[::2]), words[1::2], strict=True))}


@pytest.mark.parametrize("name", ["install.md", "run-on.md", "secure-kafka.md"])
def test_every_connection_can_be_used_by_a_stream(name: str) -> None:
    found = list(_connections(DOCS / name))

    assert found
    for given in found:
        connection = Connection(
            conn_id=given["conn_id"],
            conn_type=given["conn-type"],
            host=given.get("conn-host"),
            extra=given["conn-extra"],
        )
        if given["conn-type"] == "kafka":
            java_settings(
                kafka_from_connection(connection, given["conn_id"]), lambda path: "-----BEGIN CERTIFICATE-----"
            )
        else:
            target = spark_target(connection, given["conn_id"])
            runner = {"yarn": "yarn", "k8s": "kubernetes"}.get(target.master.partition("://")[0], "process")
            assert target.runner == runner


@each_page
def test_every_target_of_make_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    commands = [line for code in blocks(page, "") for line in code.splitlines()] + INLINE.findall(BLOCK.sub("", text))
    used = {word for line in commands for word in re.findall(r"^make ([a-z-]+)", line)}

    assert used <= targets


@each_page
def test_every_file_of_the_checkout_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:dags|docker|docs|scripts|tests)/[\w./-]+\.\w+)`", page.read_text())

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_test_that_a_page_names_exists() -> None:
    """In prose, in tables and in blocks of commands."""
    text = {page: page.read_text() for page in [*ROOT.glob("*.md"), *ROOT.glob(".github/**/*.md"), *DOCS.rglob("*.md")]}
    named = [(page.name, name) for page in text for name in re.findall(r"(?<![\w/])tests/[\w./-]+\.py", text[page])]

    assert ("CONTRIBUTING.md", "tests/rooms.py") in named
    assert [(page, name) for page, name in named if not (ROOT / name).is_file()] == []


def test_every_example_dag_is_introduced() -> None:
    dags = {found for file in (ROOT / "dags").glob("*.py") for found in re.findall(r'dag_id="(\w+)"', file.read_text())}

    assert dags <= set(rows(DOCS / "first-ten-minutes.md"))
