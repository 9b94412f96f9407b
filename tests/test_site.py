"""The documentation site: every page has a place in it, and what it shows comes from itself."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MKDOCS = ROOT / ".venv" / "bin" / "mkdocs"


class Loader(yaml.SafeLoader):
    """As MkDocs reads its configuration, where a value may come from the environment: then its default."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)  # noqa: S506 - a kind of SafeLoader
    return found


def pages(navigation: Any) -> Iterator[str]:
    """The pages that a navigation names, one after the other."""
    if isinstance(navigation, str):
        yield navigation
        return
    for entry in navigation.values() if isinstance(navigation, dict) else navigation:
        yield from pages(entry)


@pytest.mark.unit
def test_every_page_is_in_the_navigation_once_and_none_is_missing(settings: dict[str, Any]) -> None:
    named = list(pages(settings["nav"]))

    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.unit
def test_a_broken_link_fails_the_build_and_no_font_is_taken_from_another_host(settings: dict[str, Any]) -> None:
    assert settings["strict"] is True
    assert settings["theme"]["font"] is False
    assert settings["site_dir"] == "build/site"
    for kind in settings["validation"].values():
        assert set(kind.values()) == {"warn"}


@pytest.mark.unit
def test_the_api_page_has_what_a_dag_and_an_application_import() -> None:
    import airflow_ckpt
    import ckpt_stream

    shown = set(re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text(), re.MULTILINE))

    assert shown == {
        f"{package.__name__}.{name}"
        for package in (airflow_ckpt, ckpt_stream)
        for name in package.__all__
        if not name.startswith("__")
    }


@pytest.fixture(scope="module")
def hook() -> Any:
    spec = importlib.util.spec_from_file_location("docs_links", ROOT / "scripts" / "docs_links.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.unit
@pytest.mark.parametrize(
    ("page", "text", "with_repository", "without"),
    [
        ("a.md", "[x](../dags/README.md)", "[x](https://h/o/r/blob/main/dags/README.md)", "x"),
        ("design/a.md", "[x](../../LICENSE)", "[x](https://h/o/r/blob/main/LICENSE)", "x"),
        ("design/a.md", "[x](../b.md#c)", "[x](../b.md#c)", "[x](../b.md#c)"),
        ("a.md", "![x](../x.png) [y](#z)", "![x](../x.png) [y](#z)", "![x](../x.png) [y](#z)"),
        ("a.md", "[x](https://e/../f)", "[x](https://e/../f)", "[x](https://e/../f)"),
        ("a.md", "```\n[x](../LICENSE)\n```", "```\n[x](../LICENSE)\n```", "```\n[x](../LICENSE)\n```"),
    ],
)
def test_a_link_out_of_the_documentation_leads_to_the_repository_or_is_text(
    hook: Any, page: str, text: str, with_repository: str, without: str
) -> None:
    assert hook.rewritten(text, page, "https://h/o/r/") == with_repository
    assert hook.rewritten(text, page, "") == without


#: An attribute or a rule for which a browser asks another host by itself; a link waits for a user.
FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\b(?:src|srcset)=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|alternate|next|prev))[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""",
    re.IGNORECASE,
)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ('<script src="https://cdn.example/x.js">', True),
        ("<link rel=stylesheet href=//fonts.example/css>", True),
        ('<link href="https://fonts.example" rel="preconnect">', True),
        ("@font-face{src:url(https://fonts.example/a.woff)}", True),
        ("@import 'https://e/x.css'", True),
        ('<img alt="" src="https://e/x.png">', True),
        ('<link rel="canonical" href="https://me.example/">', False),
        ('<script src="assets/x.js">', False),
        ('<a href="https://kafka.apache.org">', False),
    ],
)
def test_what_a_browser_would_take_from_another_host_is_noticed(text: str, foreign: bool) -> None:
    assert bool(FOREIGN.search(text)) is foreign


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        ["make", "docs", f"ARGS=--site-dir {folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.integration
@pytest.mark.slow
def test_every_page_is_built_and_takes_nothing_from_another_host(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    asked = {
        str(file.relative_to(site)): found[0]
        for kind in ("html", "css")
        for file in site.rglob(f"*.{kind}")
        if (found := FOREIGN.search(file.read_text()))
    }
    assert asked == {}


@pytest.mark.integration
@pytest.mark.slow
def test_the_api_page_shows_signatures_and_parameters(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "api.html").read_text())

    for shown in ("kafka_conn_id", "wait_for", "FixedDelay", "max_backoff", "output_mode", "http_conn_id"):
        assert shown in text, shown


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("broken", ["[x](not-there.md)", "[x](resume.md#not-there)", "::: airflow_ckpt.NotThere"])
def test_a_page_that_leads_nowhere_fails_the_build(tmp_path: Path, broken: str) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for name in ("docs", "scripts", "airflow_ckpt", "spark"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    def built() -> int:
        return subprocess.run([MKDOCS, "build"], cwd=tmp_path, capture_output=True, check=False).returncode

    assert built() == 0
    with (tmp_path / "docs" / "verify.md").open("a") as page:
        page.write(f"\n{broken}\n")
    assert built() != 0
