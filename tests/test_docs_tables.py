"""The tables and generated pages of the documentation, held against the code: they miss nothing."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

import ckpt_stream
from airflow_ckpt.get_provider_info import get_provider_info
from airflow_ckpt.local.jars.stack_jars import KAFKA_VERSION
from airflow_ckpt.notifications.events import EVENTS
from airflow_ckpt.streams import preflight, restart_strategies, status
from airflow_ckpt.streams.durations import in_words
from airflow_ckpt.streams.stream import Stream
from airflow_ckpt.verify import verdict
from ckpt_stream.errors import StreamError
from ckpt_stream.protocol.settings.config import StreamConfig
from tests.support.docs_pages import DOCS, PAGES, ROOT, rows, script

pytestmark = pytest.mark.unit


def test_every_setting_of_a_stream_is_described_with_its_default() -> None:
    made = script("stream_settings").made_pages()
    declarations = {DOCS / "declare-a-stream.md": Stream, DOCS / "applications.md": StreamConfig}

    assert set(made) == {*declarations, DOCS / "api.md"}
    for page, text in made.items():
        assert page.read_text() == text, "run: .venv/bin/python scripts/stream_settings.py"
    for page, declaration in declarations.items():
        assert set(rows(page)) == {f.name for f in fields(declaration)}
        assert [name for name, cells in rows(page).items() if not cells[1]] == []


def test_the_api_page_shows_how_a_stream_is_made_and_no_detail_of_its_declaration() -> None:
    text = (DOCS / "api.md").read_text()

    for f in fields(Stream):
        assert re.search(rf"^    {f.name}(=[^,]+)?,$", text, re.MULTILINE), f.name
    assert "setting(" not in text
    assert "show_signature: false" in text


def test_every_state_is_described() -> None:
    states = {*status.HEALTHY, *status.BROKEN, *status.ENDED_WELL, status.NEW}

    assert len(states) == 9
    assert states <= set(rows(DOCS / "resume.md"))


def test_every_restart_strategy_is_described_with_its_defaults() -> None:
    table = rows(DOCS / "resume.md")
    for name, kind in restart_strategies.STRATEGIES.items():
        flink, settings, _ = table[kind.__name__]
        assert flink == f"`{name}`"
        words = []
        for f in fields(kind):  # type: ignore[arg-type]
            default = in_words(f.default.total_seconds()) if isinstance(f.default, timedelta) else f.default
            words.append(f"`{f.name}` {'no limit' if default is None else default}")
        assert settings == ", ".join(words), kind.__name__


def test_every_finding_of_preflight_is_described_twice() -> None:
    for page in ("resume.md", "refusals.md"):
        assert set(preflight.PREFLIGHT_KINDS) <= set(rows(DOCS / page)), page


def test_the_page_on_resuming_says_which_findings_refuse() -> None:
    table = rows(DOCS / "resume.md")
    source = inspect.getsource(preflight)
    warnings = {
        getattr(preflight, name)
        for name in re.findall(r"PreflightFinding\(\s*(\w+),(?:(?!PreflightFinding).)*?unsafe=False", source, re.DOTALL)
    }

    assert warnings == {kind for kind in preflight.PREFLIGHT_KINDS if table[kind][0] != "refused"}


def test_every_event_of_a_notifier_is_described() -> None:
    table = rows(DOCS / "resume.md")
    assert {event for event in EVENTS if event not in table} == set()


def test_every_picture_is_shown() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    assert [picture.name for picture in (DOCS / "img").iterdir() if f"img/{picture.name}" not in pages] == []


#: Every module that has errors of its own.
ERRORS = [
    importlib.import_module(".".join(path.relative_to(Path(ckpt_stream.__file__).parents[1]).with_suffix("").parts))
    for path in Path(ckpt_stream.__file__).parent.rglob("*.py")
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
    table = rows(DOCS / "refusals.md")

    # A user never sees these two: one ends a run in order, the other becomes a finding of the verdict.
    assert set(ours) - {"StopBeforeBatch", "CannotTell"} <= named
    for name, cells in table.items():
        if name in ours and len(cells) == 3:
            assert cells[1].startswith("may help") == ours[name].restart_may_help, name


def test_every_option_of_airflow_cfg_is_described() -> None:
    options = get_provider_info()["config"]["airflow_ckpt"]["options"]

    assert set(options) <= set(rows(DOCS / "install.md"))


def test_the_versions_are_those_of_the_tests() -> None:
    lock = (ROOT / "uv.lock").read_text()
    text = (DOCS / "install.md").read_text()
    for label, package in (("Airflow", "apache-airflow"), ("Spark", "pyspark")):
        version = re.search(rf'name = "{package}"\nversion = "([^"]+)"', lock)
        assert version
        assert f"| {label} | {version[1]} |" in text
    assert f"| Kafka brokers | {KAFKA_VERSION} |" in text


def test_the_reference_of_operators_is_up_to_date() -> None:
    made = script("operators_reference").page()

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


def test_every_finding_of_a_verification_is_described() -> None:
    sources = [*(ROOT / "airflow_ckpt" / "verify").rglob("*.py"), ROOT / "spark/ckpt_stream/verify/recompute_range.py"]
    calls = [
        call
        for source in sources
        for call in ast.walk(ast.parse(source.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("Finding", "CannotTell", "_unknown")
    ]
    kinds = {str(call.args[0].value) for call in calls if call.args and isinstance(call.args[0], ast.Constant)}
    kinds |= {verdict.HISTORY, verdict.TRUNCATED, verdict.REPLAY_ACCEPTED}
    page = (DOCS / "verify.md").read_text()

    assert len(kinds) > 20, "the listing is incomplete"
    assert sorted(kind for kind in kinds if f"`{kind}`" not in page) == []
