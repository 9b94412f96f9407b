"""No refusal without an exit: docs/refusals.md names one for each, and so does every refusal in the source.

The errors are found by walking the packages, so one that is added tomorrow is looked for too.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_ckpt
import ckpt_stream
from airflow_ckpt.exceptions import CkptError
from airflow_ckpt.streams import preflight
from ckpt_stream.errors import Refused, StreamError

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "refusals.md"
#: Errors that need no exit, each with the reason.
NOT_MET = {
    "Refused": "the base of refusals",
    "StopBeforeBatch": "ends a run in order",
    "CannotTell": "becomes a finding of the verdict",
    "PreflightRefused": "its findings are in the table of preflight",
    "UnknownConnection": "a BadConnection, and described as one",
    "KubernetesApiError": "a RunnerError, and described as one",
    "StackError": "of the embedded stack, not of a stream",
    "IvyFailed": "becomes a StackError when the second download fails too",
    "TooManyIds": "becomes a finding of the verdict",
}
#: How a sentence begins that says what to do.
ACTIONS = (
    "accept|bound|bring|check|choose|clear|compare|correct|create|cure|delete|do|find|give|go back|increase|install|let|look|"
    "lower|make|move|put|raise|reduce|remove|restore|resume|run|set|start|stop|submit|unset|upgrade|verify|wait|write"
)
ACTION = re.compile(rf"(?:^|[;:,.] |\bor |\bthen )(?:{ACTIONS})\b", re.IGNORECASE)
CODE = re.compile(r"`[^`]+`")


def names_an_action(text: str) -> bool:
    """A command or setting by name, or a sentence that says what to do."""
    return bool(CODE.search(text) or ACTION.search(text.strip()))


def everything_below(package: object) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):  # type: ignore[attr-defined]
        importlib.import_module(module.name)


def kinds_of(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of(kind)


def errors() -> set[str]:
    everything_below(ckpt_stream)
    everything_below(airflow_ckpt)
    ours = {*kinds_of(StreamError), *kinds_of(CkptError)}
    packages = (ckpt_stream.__name__, airflow_ckpt.__name__)
    return {
        kind.__name__ for kind in ours if kind.__module__.startswith(packages) and not kind.__name__.startswith("_")
    }


def exits(page: str) -> dict[str, str]:
    """Of every row of every table that has the column, what helps; by the name in its first cell."""
    found: dict[str, str] = {}
    helps: int | None = None
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            helps = None
        elif headings := [i for i, cell in enumerate(cells) if cell.startswith("what helps")]:
            helps = headings[0]
        elif helps is not None and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            found[name[1]] = cells[helps] if helps < len(cells) else ""
    return found


def complaints(wanted: set[str], page: str) -> list[str]:
    """Which of them the page leaves without an exit."""
    known = exits(page)
    missing = [f"{name} is in no table" for name in wanted - set(known)]
    return sorted(
        missing + [f"{name}: {known[name]!r} is no exit" for name in known if not names_an_action(known[name])]
    )


def test_the_page_names_an_exit_for_every_error_and_finding() -> None:
    assert complaints((errors() - set(NOT_MET)) | set(preflight.PREFLIGHT_KINDS), PAGE.read_text()) == []


def test_the_errors_that_need_no_exit_still_exist() -> None:
    assert set(NOT_MET) <= errors()


def test_the_walk_finds_the_errors_of_every_home() -> None:
    """Else the test above would pass by looking at nothing."""
    assert {"LedgerAhead", "BatchInDoubt", "LedgerFormatError", "GivenUp", "NotPrivate", "SubmitFailed"} <= errors()


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| `Other` | x | put it back |", "New is in no table"),
        ("| `New` | x | |", "New: '' is no exit"),
        ("| `New` | x |", "New: '' is no exit"),
        ("| `New` | x | as the message says |", "New: 'as the message says' is no exit"),
        ("| `New` | x | nothing |", "New: 'nothing' is no exit"),
        ("| `New` | x | put it back |", None),
        ("| `New` | x | the message has it; then start again |", None),
        ("| `New` | x | `airflow-ckpt ledger rebuild` |", None),
    ],
)
def test_a_new_refusal_without_an_exit_is_noticed(row: str, complaint: str | None) -> None:
    page = f"| name | found | what helps |\n| --- | --- | --- |\n{row}\n"
    assert complaints({"New"}, page) == ([complaint] if complaint else [])


# --- the source --------------------------------------------------------------------------------------------------------


def refusals(source: str, names: set[str]) -> Iterator[tuple[int, str, ast.expr | None]]:
    """Every refusal that a source makes: its line, its name, and what it says that helps."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (name := getattr(node.func, "attr", getattr(node.func, "id", ""))) in names:
            if any(isinstance(argument, ast.Starred) for argument in node.args):
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            yield node.lineno, name, node.args[2] if len(node.args) > 2 else given.get("helps")


def is_empty(helps: ast.expr | None) -> bool:
    """Whether a text is given that says nothing to do. What is made elsewhere cannot be judged here."""
    if helps is None:
        return True
    if isinstance(helps, ast.IfExp):
        return is_empty(helps.body) or is_empty(helps.orelse)
    if isinstance(helps, ast.Constant | ast.JoinedStr | ast.BinOp):
        parts = list(ast.walk(helps))
        text = "".join(str(part.value) for part in parts if isinstance(part, ast.Constant)).strip()
        made_elsewhere = any(isinstance(part, ast.Name | ast.Attribute | ast.Call) for part in parts)
        return not names_an_action(text) if text else not made_elsewhere
    return False


def without_exit(source: str, names: set[str]) -> list[tuple[int, str]]:
    return [(line, name) for line, name, helps in refusals(source, names) if is_empty(helps)]


def test_every_refusal_in_the_source_says_what_helps() -> None:
    everything_below(ckpt_stream)
    names = {Refused.__name__, *(kind.__name__ for kind in kinds_of(Refused))}
    files = [file for folder in ("spark", "airflow_ckpt") for file in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(file.relative_to(ROOT)): without_exit(file.read_text(), names) for file in files}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert sum(len(list(refusals(file.read_text(), names))) for file in files) >= 20


@pytest.mark.parametrize(
    ("call", "fine"),
    [
        ('Refused("found", "risk", "put it back.")', True),
        ('errors.Refused("found", "risk", helps=f"run `x {y}`")', True),
        ('Refused("found", "risk", exit_of(x))', True),
        ('Refused("found", "risk", "put it back" if x else "")', False),
        ('Refused("found", "risk", "")', False),
        ('Refused("found", "risk", "  ")', False),
        ('Refused("found", "risk")', False),
        ('Refused("found", "risk", "sorry.")', False),
    ],
)
def test_a_refusal_without_an_exit_in_the_source_is_noticed(call: str, fine: bool) -> None:
    assert without_exit(f"raise {call}", {"Refused"}) == ([] if fine else [(1, "Refused")])


# --- the bases ---------------------------------------------------------------------------------------------------------

#: A base says nothing of what happened: what is raised has a class that a user finds in the documentation.
BASES = {CkptError.__name__, StreamError.__name__, Refused.__name__}


def raised_bases(source: str) -> list[tuple[int, str]]:
    """Each place that raises a base itself: its line, and the name."""
    return [
        (node.lineno, name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        for part in ast.walk(node.exc.func)
        if (name := getattr(part, "attr", getattr(part, "id", ""))) in BASES
    ]


def test_no_source_raises_a_base_itself() -> None:
    files = [file for folder in ("spark", "airflow_ckpt", "dags") for file in sorted((ROOT / folder).rglob("*.py"))]
    found = {str(file.relative_to(ROOT)): raised_bases(file.read_text()) for file in files}

    assert len(files) > 200, "the listing is incomplete"
    assert {name: places for name, places in found.items() if places} == {}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('raise CkptError("found")', "CkptError"),
        ('raise errors.StreamError("found") from e', "StreamError"),
        ('raise (CkptError if temporary else Other)("found")', "CkptError"),
        ('raise BadStream("found")', None),
        ("raise", None),
        ("raise error", None),
    ],
)
def test_a_base_that_is_raised_itself_is_noticed(line: str, name: str | None) -> None:
    assert raised_bases(line) == ([(1, name)] if name else [])
