"""What is imported is declared in pyproject.toml, and what is declared there is imported or has a reason."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What runs on a user's machines, and what only a contributor runs.
SHIPPED = ("airflow_ckpt", "spark")
OURS = ("tests", "scripts", "bench", "dags")
#: Extras that are no part of an installation that runs streams.
FOR_CONTRIBUTORS = ("dev", "docs")
#: Extras that `make setup` installs beside the dependencies.
SET_UP = ("local", "dev", "s3")

#: Modules that a test writes for itself before it imports them.
WRITTEN_BY_TESTS = {"archived"}

#: Packages whose name is not that of their distribution with hyphens for underscores.
NAMED_OTHERWISE = {"airflow": "apache-airflow", "yaml": "pyyaml"}
PROVIDER = "airflow.providers."

#: Why a distribution is declared that no file imports.
REASONS = {
    "apache-airflow-providers-apache-kafka": "its connection type `kafka`, and the hooks in the example DAGs",
    "apache-airflow-providers-cncf-kubernetes": "SparkSubmitHook wants it for a master `k8s://`",
    "pyspark-client": "required by Airflow's Spark provider; declared so that its version can be held equal to pyspark's",
    "s3fs": "loaded by fsspec for `s3://`",
    "gcsfs": "loaded by fsspec for `gs://`",
    "adlfs": "loaded by fsspec for `abfss://`",
    "build": "a program: makes the wheel",
    "mypy": "a program: `make lint`",
    "pre-commit": "a program: the linters before a commit",
    "ruff": "a program: `make lint`",
    "pytest-cov": "a plugin of pytest: `make test-unit`",
    "pytest-timeout": "a plugin of pytest: the time limit of each test",
    "pytest-xdist": "a plugin of pytest: two files at a time",
    "types-psutil": "types for mypy",
    "types-requests": "types for mypy",
    "mkdocs": "a program: `make docs`",
    "mkdocs-material": "a theme of mkdocs",
    "mkdocstrings": "a plugin of mkdocs: the API page",
    "mkdocstrings-python": "a plugin of mkdocstrings",
}


def name_of(requirement: str) -> str:
    """The distribution in a requirement such as `moto[server]>=5`."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def declared(*extras: str) -> set[str]:
    """The dependencies, and those of the extras named."""
    optional = PROJECT["optional-dependencies"]
    return {name_of(r) for r in [*PROJECT["dependencies"], *(r for extra in extras for r in optional[extra])]}


def imported_by(source: str) -> set[str]:
    """The modules that a source imports, wherever the import stands; `import_module("x")` counts too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__", "importorskip"):
                found.add(str(node.args[0].value))
    return found


def own_modules() -> set[str]:
    """What the repository itself can be imported as."""
    files = [file for folder in ("spark", "dags") for file in (ROOT / folder).glob("*.py")]
    return {"airflow_ckpt", "ckpt_stream", "tests", "bench", *WRITTEN_BY_TESTS, *(file.stem for file in files)}


def distribution(module: str, known: Iterable[str]) -> str:
    """The distribution that has a module. A provider of Airflow is found by its longest name that is known."""
    top = module.split(".")[0]
    if module.startswith(PROVIDER):
        parts = module.removeprefix(PROVIDER).split(".")
        names = [f"apache-airflow-providers-{'-'.join(parts[:n])}" for n in range(len(parts), 0, -1)]
        return next((name for name in names if name in known), names[-1])
    return NAMED_OTHERWISE.get(top, top.replace("_", "-"))


def distributions(sources: Iterable[str], known: Iterable[str], ours: set[str]) -> set[str]:
    """Every distribution of others that the sources import."""
    modules = {module for source in sources for module in imported_by(source)}
    foreign = {m for m in modules if m.split(".")[0] not in sys.stdlib_module_names | ours}
    # `from airflow.providers.x import y` names the package and the module: the package alone says nothing.
    return {distribution(m, known) for m in foreign if m.count(".") > 2 or not m.startswith(PROVIDER)}


def used_by(folders: Iterable[str]) -> set[str]:
    sources = [file.read_text() for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    return distributions(sources, ALL, own_modules())


EXTRAS = tuple(PROJECT["optional-dependencies"])
ALL = declared(*EXTRAS)


def test_what_a_user_runs_imports_only_what_is_declared_for_users() -> None:
    of_users = [extra for extra in EXTRAS if extra not in FOR_CONTRIBUTORS]

    assert used_by(SHIPPED) - declared(*of_users) == set()


def test_tests_and_examples_import_only_what_make_setup_installs() -> None:
    assert used_by(OURS) - declared(*SET_UP) == set()


def test_what_is_declared_is_imported_or_has_a_reason() -> None:
    of_users = declared(*(extra for extra in EXTRAS if extra not in FOR_CONTRIBUTORS))

    assert of_users - used_by(SHIPPED) - set(REASONS) == set()
    assert declared("dev") - declared() - used_by(OURS) - set(REASONS) == set()
    assert declared("docs") - declared() - set(REASONS) == set()


def test_the_documentation_names_what_each_extra_of_a_user_brings() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| (`airflow-ckpt\[[^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    brings = {tuple(re.findall(r"\[(\w+)\]", extras)): set(re.findall(r"`([\w-]+)`", names)) for extras, names in rows}

    assert sorted(e for extras in brings for e in extras) == sorted(set(EXTRAS) - set(FOR_CONTRIBUTORS))
    assert brings == {extras: declared(*extras) - declared() for extras in brings}


def test_no_reason_is_given_for_what_is_imported_or_gone() -> None:
    """A reason that is out of date would hide the next mistake."""
    assert set(REASONS) - ALL == set()
    # The Kafka provider's hooks are used by example DAGs, which a user does not need.
    assert set(REASONS) & used_by(SHIPPED) == set()
    assert set(REASONS) & (used_by(OURS) - declared()) == set()


def test_every_dependency_has_a_lower_bound_and_the_documentation_an_upper_one_too() -> None:
    optional = PROJECT["optional-dependencies"]
    given = [*PROJECT["dependencies"], *(r for requirements in optional.values() for r in requirements)]

    assert [r for r in given if ">=" not in r and not r.startswith("types-")] == []
    assert [r for r in optional["docs"] if ",<" not in r] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import numpy as np", {"numpy"}),
        ("def later():\n    from confluent_kafka.admin import AdminClient", {"confluent-kafka"}),
        ("import importlib\nimportlib.import_module('yaml')", {"pyyaml"}),
        ("from airflow.sdk import DAG", {"apache-airflow"}),
        ("from airflow.providers.a.b.hooks.c import D", {"apache-airflow-providers-a-b"}),
        ("from airflow.providers.a.b import D", {"apache-airflow-providers-a-b"}),
        ("from airflow.providers.unknown.x import D", {"apache-airflow-providers-unknown"}),
        ("import json, ours.thing\nfrom . import sibling", set()),
    ],
)
def test_the_reader_of_imports_finds_the_distribution(source: str, found: set[str]) -> None:
    known = {"apache-airflow-providers-a-b", "apache-airflow"}

    assert distributions([source], known, {"ours"}) == found
