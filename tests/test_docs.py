"""The documentation, held against the code: its examples run, its links lead somewhere, its tables miss nothing."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main
from airflow.models.connection import Connection

import ckpt_stream
from airflow_ckpt.cli import app
from airflow_ckpt.get_provider_info import get_provider_info
from airflow_ckpt.hooks.connections import kafka_settings, spark_target
from airflow_ckpt.local.jars import KAFKA_VERSION
from airflow_ckpt.notifications.tell import EVENTS
from airflow_ckpt.streams import preflight, restart, status
from airflow_ckpt.streams.duration import in_words
from airflow_ckpt.streams.stream import Stream
from ckpt_stream.errors import StreamError
from ckpt_stream.security import java_settings

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
#: Where a command of ours begins in a line of a terminal.
OURS = re.compile(r"(?:^|\s)(?:\.venv/bin/)?airflow-ckpt (?=\S)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == language]


def _rows(page: Path) -> dict[str, list[str]]:
    """Every row of every table whose first cell is a name, by that name; the other cells."""
    rows: dict[str, list[str]] = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            rows[name[1]] = cells[1:]
    return rows


# --- examples -----------------------------------------------------------------------------------------------------


@each_page
def test_every_python_example_compiles(page: Path) -> None:
    for number, code in enumerate(_blocks(page, "python")):
        compile(code, f"{page.name}, block {number}", "exec")


@each_page
def test_every_example_of_the_provider_runs(page: Path) -> None:
    """The blocks of a page, one after the other, as a DAG file is imported."""
    namespace: dict[str, Any] = {"__name__": "example"}
    for number, code in enumerate(_blocks(page, "python")):
        if "airflow_ckpt import" in code or ("airflow_ckpt" in namespace.get("seen", "") and "pyspark" not in code):
            namespace["seen"] = namespace.get("seen", "") + code
            exec(compile(code, f"{page.name}, block {number}", "exec"), namespace)  # noqa: S102 - our own examples
    for dag in _dags(namespace):
        assert dag.task_ids, f"{dag.dag_id} has no tasks"
        dag.check_cycle()


def test_the_examples_declare_dags() -> None:
    """Else the test above would pass by running nothing."""
    declaring = [page.name for page in PAGES if any("with DAG(" in code for code in _blocks(page, "python"))]

    assert declaring == ["README.md", "declare-a-stream.md", "resume.md"]


def _dags(namespace: Mapping[str, Any]) -> Iterator[Any]:
    from airflow.sdk import DAG

    yield from (value for value in namespace.values() if isinstance(value, DAG))


def test_the_error_that_the_page_shows_is_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    shown = ""
    for code in _blocks(DOCS / "declare-a-stream.md", "python"):
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
    named = set(LINK.findall((DOCS / "index.md").read_text()))

    assert named == {page.name for page in DOCS.glob("*.md")} - {"index.md"}


@each_page
def test_every_command_and_option_exists(page: Path) -> None:
    text = page.read_text()
    lines = [line for code in _blocks(page, "") for line in re.sub(r"\\\n", " ", code).splitlines()]
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
    for code in _blocks(page, ""):
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
            java_settings(kafka_settings(connection, given["conn_id"]), lambda path: "-----BEGIN CERTIFICATE-----")
        else:
            target = spark_target(connection, given["conn_id"])
            runner = {"yarn": "yarn", "k8s": "kubernetes"}.get(target.master.partition("://")[0], "process")
            assert target.runner == runner


@each_page
def test_every_target_of_make_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text()
    commands = [line for code in _blocks(page, "") for line in code.splitlines()] + INLINE.findall(BLOCK.sub("", text))
    used = {word for line in commands for word in re.findall(r"^make ([a-z-]+)", line)}

    assert used <= targets


@each_page
def test_every_file_of_the_checkout_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:dags|docker|docs|scripts|tests)/[\w./-]+\.\w+)`", page.read_text())

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_example_dag_is_introduced() -> None:
    dags = {found for file in (ROOT / "dags").glob("*.py") for found in re.findall(r'dag_id="(\w+)"', file.read_text())}

    assert dags <= set(_rows(DOCS / "first-ten-minutes.md"))


# --- tables -------------------------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    if value is MISSING:
        return "required"
    if isinstance(value, timedelta):
        return in_words(value.total_seconds())
    if isinstance(value, restart.RestartStrategy):
        return f"`{type(value).__name__}()`"
    return "" if value is None or value in ("", (), {}) else f"`{value}`"


def test_every_setting_of_a_stream_is_described_with_its_default() -> None:
    rows = _rows(DOCS / "declare-a-stream.md")
    defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(Stream)}

    assert set(rows) == set(defaults)
    assert {name: rows[name][0] for name in rows} == {name: _shown(value) for name, value in defaults.items()}
    assert [name for name, cells in rows.items() if not cells[1]] == []


def test_every_state_is_described() -> None:
    states = {value for name, value in vars(status).items() if name.isupper() and value == name}

    assert len(states) == 9
    assert states <= set(_rows(DOCS / "resume.md"))


def test_every_restart_strategy_is_described_with_its_defaults() -> None:
    rows = _rows(DOCS / "resume.md")
    for name, kind in restart.STRATEGIES.items():
        flink, settings, _ = rows[kind.__name__]
        assert flink == f"`{name}`"
        words = []
        for f in fields(kind):  # type: ignore[arg-type]
            default = in_words(f.default.total_seconds()) if isinstance(f.default, timedelta) else f.default
            words.append(f"`{f.name}` {'no limit' if default is None else default}")
        assert settings == ", ".join(words), kind.__name__


def test_every_finding_of_preflight_is_described_twice() -> None:
    for page in ("resume.md", "refusals.md"):
        assert set(preflight.KINDS) <= set(_rows(DOCS / page)), page


def test_the_page_on_resuming_says_which_findings_refuse() -> None:
    rows = _rows(DOCS / "resume.md")
    source = inspect.getsource(preflight)
    warnings = {
        getattr(preflight, name)
        for name in re.findall(r"PreflightFinding\(\s*(\w+),(?:(?!PreflightFinding).)*?unsafe=False", source, re.DOTALL)
    }

    assert warnings == {kind for kind in preflight.KINDS if rows[kind][0] != "refused"}


def test_every_event_that_notifiers_are_told_is_described() -> None:
    rows = _rows(DOCS / "resume.md")
    assert {event for event in EVENTS if event not in rows} == set()


def test_every_picture_is_shown() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    assert [picture.name for picture in (DOCS / "img").iterdir() if f"img/{picture.name}" not in pages] == []


#: Every module that has errors of its own.
ERRORS = [
    importlib.import_module(f"ckpt_stream.{path.stem}")
    for path in Path(ckpt_stream.__file__).parent.glob("*.py")
    if re.search(r"^class \w+\((StreamError|Refused|SinkError)\)", path.read_text(), re.MULTILINE)
]


def test_every_refusal_is_described() -> None:
    named = set(re.findall(r"`(\w+)`", (DOCS / "refusals.md").read_text()))
    ours = {
        kind.__name__: kind
        for module in ERRORS
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, StreamError)
    }
    rows = _rows(DOCS / "refusals.md")

    # Nobody meets these two: one ends a run in order, the other becomes a finding of the verdict.
    assert set(ours) - {"StopBeforeBatch", "CannotTell"} <= named
    for name, cells in rows.items():
        if name in ours and len(cells) == 3:
            assert cells[1].startswith("may help") == ours[name].restart_may_help, name


def test_every_option_of_airflow_cfg_is_described() -> None:
    options = get_provider_info()["config"]["airflow_ckpt"]["options"]

    assert set(options) <= set(_rows(DOCS / "install.md"))


def test_the_versions_are_those_of_the_tests() -> None:
    lock = (ROOT / "uv.lock").read_text()
    text = (DOCS / "install.md").read_text()
    for label, package in (("Airflow", "apache-airflow"), ("Spark", "pyspark")):
        version = re.search(rf'name = "{package}"\nversion = "([^"]+)"', lock)
        assert version
        assert f"| {label} | {version[1]} |" in text
    assert f"| Kafka brokers | {KAFKA_VERSION} |" in text


def test_the_reference_of_operators_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("operators_reference", ROOT / "scripts/operators_reference.py")
    assert spec
    assert spec.loader
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)

    made = reference.page()

    assert (DOCS / "operators.md").read_text() == made, "run: .venv/bin/python scripts/operators_reference.py"


def test_the_reference_has_every_operator_of_the_provider() -> None:
    info = get_provider_info()
    modules = [m for kind in ("operators", "sensors") for entry in info[kind] for m in entry["python-modules"]]
    text = (DOCS / "operators.md").read_text()
    for name in modules:
        module = importlib.import_module(name)
        own = [k for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == name and "Operator" in k]
        own += [k for k, v in vars(module).items() if isinstance(v, type) and v.__module__ == name and "Sensor" in k]
        assert own
        for kind in own:
            assert f"\n## {kind}\n" in text


def test_the_picture_of_the_protocol_is_well_formed() -> None:
    from xml.etree import ElementTree

    picture = ElementTree.parse(DOCS / "protocol.svg").getroot()  # noqa: S314 - our own file

    assert picture.find("{http://www.w3.org/2000/svg}title") is not None
    assert "protocol.svg" in (DOCS / "exactly-once.md").read_text()
