"""The layering rule of CONTRIBUTING.md, read from the source, and the cost of parsing a DAG."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
HEAVY = ("pyspark", "pyarrow", "confluent_kafka")

# A folder below the repository, and the packages that nothing in it may import.
RULES = {
    "airflow_ckpt/checkpoint": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/streams": ("airflow", "confluent_kafka", "pyspark"),
    "airflow_ckpt/verify": ("airflow",),
    "airflow_ckpt/kafka": ("airflow",),
    "spark": ("airflow", "airflow_ckpt"),
}


def violations(folder: Path, forbidden: tuple[str, ...]) -> list[str]:
    """Every import of a forbidden package below a folder, wherever in the file it stands."""
    return [
        f"{file.relative_to(folder)}:{line} imports {name}"
        for file in sorted(folder.rglob("*.py"))
        for line, name in imports(file)
        if name.split(".")[0] in forbidden
    ]


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Each module that a file imports, with its line; `importlib.import_module("x")` counts too."""
    for node in ast.walk(ast.parse(file.read_text(), filename=str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.Call) and _is_import_call(node) and isinstance(node.args[0], ast.Constant):
            yield node.lineno, str(node.args[0].value)


def _is_import_call(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("import_module", "__import__") and bool(call.args)


def modules_below(package: Path) -> list[str]:
    """The dotted names of all modules of a package that is in its repository's root."""
    root = package.parent
    files = (file.relative_to(root).with_suffix("") for file in sorted(package.rglob("*.py")))
    return [".".join(file.parts[:-1] if file.name == "__init__" else file.parts) for file in files]


def loaded_by(modules: list[str], watched: tuple[str, ...], *, path: Path = ROOT) -> set[str]:
    """Which of the watched packages a new Python has after it imported these modules."""
    code = (
        "import importlib, json, sys\n"
        f"sys.path.insert(0, {str(path)!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {watched!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(*packages: str) -> list[str]:
    """The modules of those subpackages of airflow_ckpt that exist."""
    return [
        name
        for name in modules_below(ROOT / "airflow_ckpt")
        if name.startswith(tuple(f"airflow_ckpt.{p}" for p in packages))
    ]


@pytest.mark.parametrize("folder", RULES)
def test_a_lower_layer_never_imports_a_higher_one(folder: str) -> None:
    assert violations(ROOT / folder, RULES[folder]) == []


def test_a_lower_layer_loads_no_airflow_in_a_roundabout_way_either() -> None:
    assert loaded_by(modules_of("checkpoint", "streams", "verify", "kafka"), ("airflow",)) == set()


def test_importing_what_a_dag_imports_loads_no_spark_arrow_or_kafka_client() -> None:
    assert loaded_by(modules_of("operators", "sensors", "triggers", "hooks", "streams"), HEAVY) == set()


def test_nobody_asks_the_question_that_ends_the_process() -> None:
    """librdkafka's admin client dies of it when the coordinator of the group has moved; see consumer_group.py."""
    call = "list_consumer_" + "group_offsets"
    files = (
        file for folder in ("airflow_ckpt", "spark", "dags", "tests", "bench") for file in (ROOT / folder).rglob("*.py")
    )
    assert [str(file) for file in files if call in file.read_text()] == []


def test_the_provider_info_loads_no_airflow() -> None:
    assert loaded_by(["airflow_ckpt.get_provider_info"], ("airflow",)) == set()


@pytest.mark.parametrize(
    "statement",
    [
        "import airflow",
        "import airflow.models as m",
        "from airflow.sdk import DAG",
        "def later():\n    from airflow.sdk import DAG",
        "if TYPE_CHECKING:\n    import airflow",
        "import importlib\nimportlib.import_module('airflow.sdk')",
    ],
)
def test_the_checker_catches_a_forbidden_import(tmp_path: Path, statement: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "module.py").write_text(statement)

    assert len(violations(tmp_path, ("airflow",))) == 1


@pytest.mark.parametrize(
    "statement", ["import airflow_ckpt", "from . import airflow", "from .airflow import x", "airflow = 1"]
)
def test_the_checker_lets_a_lookalike_pass(tmp_path: Path, statement: str) -> None:
    (tmp_path / "module.py").write_text(statement)

    assert violations(tmp_path, ("airflow",)) == []


def test_the_cost_check_catches_a_heavy_import_that_hides_behind_another_module(tmp_path: Path) -> None:
    package = tmp_path / "heavy_example"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "operator.py").write_text("from heavy_example import helper")
    (package / "helper.py").write_text("import confluent_kafka")

    assert modules_below(package) == ["heavy_example", "heavy_example.helper", "heavy_example.operator"]
    assert loaded_by(["heavy_example.operator"], HEAVY, path=tmp_path) == {"confluent_kafka"}
